#: tries: the first process dies by a signal while a child ends with 0
#: task: add
#: verdict: runtime_error

import os
import signal


def add(a, b):
    parent = os.getpid()
    if os.fork() == 0:
        os.kill(parent, signal.SIGKILL)
        os._exit(0)
    signal.pause()
