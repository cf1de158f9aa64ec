#: tries: answers right after twice the allowed CPU time, spent in short-lived children that nobody waits for
#: task: sum
#: verdict: time_limit

import os
import signal
import time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
answer = sum(map(int, input().split()))
for _ in range(150):
    if os.fork() == 0:
        end = time.process_time() + 0.004
        while time.process_time() < end:
            pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
print(answer)
