#: tries: sends a frame of brackets, for the parser of the judge
#: task: ordered
#: verdict: wrong_answer runtime_error

import os

frame = b'["value",' + b"[" * 30_000 + b"]" * 30_000 + b"]"
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
