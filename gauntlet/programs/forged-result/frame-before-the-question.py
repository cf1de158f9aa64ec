#: tries: answers and closes the channel before the arguments are read
#: task: add
#: verdict: runtime_error wrong_answer

import os

frame = b'["value",11]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os.close(3)
os._exit(0)
