#: tries: lowers the limits, priorities and cores of process 1
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: changes limits of other processes of its user

import ctypes
import os
import resource

libc = ctypes.CDLL(None, use_errno=True)
zero = (ctypes.c_uint64 * 2)(0, 0)
for pid in (1, os.getppid(), JUDGE_PID, CANARY_PID):
    for kind in range(16):
        libc.prlimit(pid, kind, ctypes.byref(zero), None)
        try:
            resource.prlimit(pid, kind, (0, 0))
        except (OSError, ValueError):
            pass
    libc.setpriority(0, pid, 19)
    for call in (lambda pid: os.sched_setaffinity(pid, {0}), lambda pid: os.sched_setscheduler(pid, 3, os.sched_param(0))):
        try:
            call(pid)
        except OSError:
            pass
