#: tries: leaves a process by every trick of daemons
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: leaves a process for a while

import os
import signal
import time

for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.setpgid(0, 0)
        os.closerange(0, 256)
        os.chdir("/")
        time.sleep(10)
        os._exit(0)
