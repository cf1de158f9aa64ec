#: tries: sends frames of the proxy's protocol by hand, out of turn and malformed
#: task: add-check
#: verdict: runtime_error wrong_answer output_limit

import os
import threading


def noise():
    for text in (b"[]", b"{}", b"null", b'["call"]', b'["raise","SystemExit"]', b'["error","SystemExit",[]]', b"\xff"):
        try:
            os.write(3, len(text).to_bytes(4, "big") + text)
        except OSError:
            pass


def add(a, b):
    threading.Thread(target=noise).start()
    return -1
