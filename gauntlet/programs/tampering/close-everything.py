#: tries: closes every descriptor, the channel too
#: task: add
#: verdict: runtime_error wrong_answer

import os

os.closerange(0, 4096)


def add(a, b):
    return a + b + 1
