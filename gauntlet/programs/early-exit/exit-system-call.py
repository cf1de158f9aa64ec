#: tries: ends by the system call itself, so that nothing in Python sees it
#: task: sum
#: verdict: wrong_answer

import ctypes

libc = ctypes.CDLL(None)
libc.syscall(231, 0)  # exit_group
libc._exit(0)
