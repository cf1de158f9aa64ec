#: tries: ends with exit code 0 in the middle of the call
#: task: add
#: verdict: runtime_error

import os


def add(a, b):
    os._exit(0)
