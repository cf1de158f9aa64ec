#: tries: takes a little memory in each of many processes
#: task: sum-slow
#: verdict: memory_limit runtime_error time_limit
#: harms: takes a few gigabytes

import os
import time

for _ in range(20):
    if os.fork() == 0:
        block = bytearray(100 << 20)
        time.sleep(5)
        os._exit(0)
time.sleep(5)
