#: tries: makes its children the children of process 1, and has them compute
#: task: sum
#: verdict: time_limit

import ctypes
import os

CLONE_PARENT, SIGCHLD = 0x8000, 17
answer = sum(map(int, input().split()))
read, write = os.pipe()
for _ in range(3):
    if ctypes.CDLL(None).syscall(56, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0:
        total = 0
        for number in range(20_000_000):
            total += number
        os._exit(0)
os.close(write)
os.read(read, 1)
print(answer)
