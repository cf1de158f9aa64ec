#: tries: swallows the exceptions by which in-process graders end a test
#: task: sum
#: verdict: time_limit

import signal

while True:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        while True:
            pass
    except BaseException:
        pass
