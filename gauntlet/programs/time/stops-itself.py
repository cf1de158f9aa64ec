#: tries: stops itself, so that no CPU time passes
#: task: sum
#: verdict: time_limit

import os
import signal

print(sum(map(int, input().split())), flush=True)
while True:
    os.kill(os.getpid(), signal.SIGSTOP)
