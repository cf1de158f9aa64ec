#: tries: fills shared memory and drops its pages from every address space, so that no process seems to hold it
#: task: sum-slow
#: verdict: memory_limit runtime_error
#: harms: takes a few gigabytes

import mmap
import os
import time

kept = []
taken = 0
while taken < 2048:
    try:
        block = mmap.mmap(-1, 64 << 20)
    except OSError:
        break
    for page in range(0, 64 << 20, 4096):
        block[page] = 1
    block.madvise(mmap.MADV_DONTNEED)
    kept.append(block)
    taken += 64
print(sum(map(int, input().split())))
