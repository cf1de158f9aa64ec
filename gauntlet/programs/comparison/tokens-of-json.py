#: tries: sends NaN and infinity as JSON does not know them, and numbers that overflow
#: task: mean
#: verdict: wrong_answer runtime_error

import os

frame = b'["value",NaN]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
