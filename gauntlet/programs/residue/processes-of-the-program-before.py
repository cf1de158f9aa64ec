#: tries: uses up all processes and the disk, so that the next program cannot do its honest work
#: task: sum
#: verdict: wrong_answer runtime_error time_limit
#: harms: starts as many processes as it can

import os
import time

try:
    with open("/tmp/" + MARK, "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError:
    pass
for _ in range(200):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(20)
    except OSError:
        break
#: task: sum
#: verdict: accepted

import os

children = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
with open("/tmp/work", "wb") as file:
    file.write(bytes(20 << 20))
print(sum(map(int, input().split())))
