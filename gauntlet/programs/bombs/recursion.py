#: tries: calls itself until the stack ends
#: task: sum
#: verdict: runtime_error memory_limit time_limit

import sys

sys.setrecursionlimit(10**9)


def f():
    f()


f()
