#: tries: sends an object with the same key twice, once right and once wrong
#: task: table
#: verdict: wrong_answer runtime_error

import os

frame = b'["value",{"a":2,"b":1,"a":3,"c":1}]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
