#: tries: is killed in the middle of a check, as if by the host
#: task: add-check
#: verdict: runtime_error

import os
import signal


def add(a, b):
    os.kill(os.getpid(), signal.SIGKILL)
