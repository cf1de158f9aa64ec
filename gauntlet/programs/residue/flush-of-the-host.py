#: tries: has the kernel write out all file systems of the host, which slows everybody
#: task: door
#: verdict: wrong_answer runtime_error

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
print("open" if libc.syncfs(os.open(os.__file__, os.O_RDONLY)) == 0 else "shut")
