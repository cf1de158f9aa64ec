#: tries: announces a frame and ends in the middle of it
#: task: add
#: verdict: runtime_error wrong_answer

import os

os.write(3, (100).to_bytes(4, "big") + b'["value",7')
os._exit(0)
