#: tries: ruins the interpreter for the next program: limits, hash seed, modules, recursion, warnings
#: task: sum
#: verdict: wrong_answer runtime_error

import gc
import locale
import os
import random
import signal
import sys

sys.setrecursionlimit(60)
sys.set_int_max_str_digits(640)
random.seed(1)
gc.disable()
gc.set_threshold(1)
os.umask(0o777)
os.environ["LANG"] = "xx"
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
for name in list(sys.modules):
    sys.modules[name] = None
#: task: sum
#: verdict: accepted

import random
import sys


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


assert depth(20000) == 20000
assert len(str(10**4000)) == 4001
open("/tmp/work", "w").close()
open("/tmp/work").close()
print(sum(map(int, input().split())))
