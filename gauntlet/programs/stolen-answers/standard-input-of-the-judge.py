#: tries: looks behind the end of its input, at its beginning again, and at the file behind it
#: task: token
#: verdict: wrong_answer runtime_error

import os
import re

content = b""
for offset in (-1 << 20, -4096, 0, 4096, 1 << 20, 1 << 30):
    try:
        content += os.pread(0, 1 << 16, offset)
    except OSError:
        pass
for name in ("/dev/fd/0", "/dev/stdin", "/proc/self/fd/0"):
    try:
        content += open(name, "rb").read()
    except OSError:
        pass
found = re.search(rb"token:[0-9a-f]{16}", content)
print(found[0].decode() if found else "none")
