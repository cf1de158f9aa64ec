#: tries: is killed by its child, again and again
#: task: add
#: verdict: runtime_error

import os
import signal


def add(a, b):
    if os.fork() == 0:
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    signal.pause()
