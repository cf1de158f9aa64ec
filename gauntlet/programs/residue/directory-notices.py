#: tries: asks for notices of what others read in folders that all cells share
#: task: door
#: verdict: wrong_answer runtime_error

import fcntl
import os

DN_ACCESS, DN_MULTISHOT = 1, 0x80000000
try:
    fcntl.fcntl(os.open(os.path.dirname(os.__file__), os.O_RDONLY), fcntl.F_NOTIFY, DN_ACCESS | DN_MULTISHOT - (1 << 32))
    print("open")
except OSError:
    print("shut")
