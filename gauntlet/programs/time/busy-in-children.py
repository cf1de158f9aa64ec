#: tries: has children compute and waits for the last one
#: task: sum
#: verdict: time_limit

import os

for _ in range(4):
    if os.fork() == 0:
        while True:
            pass
os.wait()
