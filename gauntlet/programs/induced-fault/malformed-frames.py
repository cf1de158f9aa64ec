#: tries: sends content of every wrong kind
#: task: add
#: verdict: runtime_error wrong_answer

import os

frame = b'["value",{"$":["list"],"v":{}}]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
