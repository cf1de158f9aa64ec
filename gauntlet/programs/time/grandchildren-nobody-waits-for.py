#: tries: the same with orphans, which process 1 inherits
#: task: sum
#: verdict: time_limit

import os
import time

answer = sum(map(int, input().split()))
for _ in range(60):
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            end = time.process_time() + 0.01
            while time.process_time() < end:
                pass
            os._exit(0)
        os._exit(0)
    os.close(write)
    os.wait()
    os.read(read, 1)
    os.close(read)
print(answer)
