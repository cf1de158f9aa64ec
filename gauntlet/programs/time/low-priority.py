#: tries: lowers its own priority and scheduling class, so that measuring takes longer
#: task: sum
#: verdict: time_limit

import os

for call in (lambda: os.nice(19), lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))):
    try:
        call()
    except OSError:
        pass
while True:
    pass
