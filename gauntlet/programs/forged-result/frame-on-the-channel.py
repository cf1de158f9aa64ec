#: tries: writes a frame that looks like a result, with an answer of its own
#: task: add
#: verdict: wrong_answer runtime_error

import os

frame = b'["value",true]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
