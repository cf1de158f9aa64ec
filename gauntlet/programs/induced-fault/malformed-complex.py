#: tries: sends numbers that overflow and parts of the wrong type
#: task: add
#: verdict: runtime_error wrong_answer

import os

frame = b'["value",{"$":"complex","v":[1%s,"a"]}]' % (b"0" * 4000)
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
