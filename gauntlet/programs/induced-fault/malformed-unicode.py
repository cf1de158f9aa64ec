#: tries: sends halves of characters and bytes that are no UTF-8
#: task: token-call
#: verdict: runtime_error wrong_answer

import os

frame = b'["value","\\ud800\xff\x00"]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
