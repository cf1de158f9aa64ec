#: tries: leaves a process from a call that is answered right, and one that holds the channel
#: task: add
#: verdict: accepted runtime_error
#: harms: leaves a process for a while

import os
import time


def add(a, b):
    if os.fork() == 0:
        os.setsid()
        time.sleep(10)
        os._exit(0)
    return a + b
