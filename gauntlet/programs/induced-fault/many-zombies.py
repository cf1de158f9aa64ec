#: tries: leaves as many ended children as it may, for process 1 to reap
#: task: sum
#: verdict: wrong_answer runtime_error time_limit
#: harms: starts many processes

import os

for _ in range(3000):
    try:
        if os.fork() == 0:
            os._exit(0)
    except OSError:
        try:
            os.wait()
        except ChildProcessError:
            pass
