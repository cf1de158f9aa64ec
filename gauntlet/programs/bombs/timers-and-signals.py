#: tries: queues signals and makes timers until the kernel refuses
#: task: sum
#: verdict: wrong_answer runtime_error time_limit
#: harms: uses up signals of its user

import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
for _ in range(50_000):
    libc.sigqueue(os.getpid(), 40, 0)
timer = ctypes.c_void_p()
for _ in range(50_000):
    if libc.timer_create(1, None, ctypes.byref(timer)):
        break
