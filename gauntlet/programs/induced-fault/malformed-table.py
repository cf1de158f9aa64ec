#: tries: sends a table whose keys cannot be keys
#: task: table
#: verdict: runtime_error wrong_answer

import os

frame = b'["value",{"$":"dict","v":[[[],1],[{"$":"set","v":[[]]},{"$":"frozenset","v":[{"$":"float","v":{}}]}]]}]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
