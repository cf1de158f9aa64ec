#: tries: leaves a process in an uninterruptible wait, which is hard to kill
#: task: sum
#: verdict: wrong_answer runtime_error time_limit

import ctypes
import os
import time

libc = ctypes.CDLL(None)
if os.fork() == 0:
    os.setsid()
    if libc.syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0:  # CLONE_VFORK: the parent waits until the child ends
        time.sleep(10)
    os._exit(0)
time.sleep(0.02)
