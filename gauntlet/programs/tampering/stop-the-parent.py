#: tries: stops, continues and kills process 1 and everything else in sight
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: kills the processes of its user

import os
import signal

for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
    for pid in (1, os.getppid(), JUDGE_PID, CANARY_PID, -JUDGE_PID):
        try:
            os.kill(pid, number)
        except OSError:
            pass
