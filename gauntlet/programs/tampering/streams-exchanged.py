#: tries: exchanges standard output, standard input and the channel
#: task: add
#: verdict: wrong_answer runtime_error time_limit

import os


def add(a, b):
    os.dup2(1, 3)
    os.dup2(0, 1)
    os.close(0)
    return a + b + 1
