#: tries: doubles its processes until the kernel refuses; at most 2048 where nothing does
#: task: sum
#: verdict: runtime_error time_limit wrong_answer memory_limit
#: harms: starts thousands of processes

import os
import time

for _ in range(11):
    try:
        os.fork()
    except OSError:
        pass
time.sleep(0.3)
