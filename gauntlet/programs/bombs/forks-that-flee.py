#: tries: every process starts another in a new session and ends, so that none can be caught
#: task: sum
#: verdict: runtime_error time_limit wrong_answer
#: harms: leaves processes without end

import os

for _ in range(20_000):
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
    except OSError:
        pass
