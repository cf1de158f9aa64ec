#: tries: returns a list that a thread changes while it is written down
#: task: ordered
#: verdict: wrong_answer runtime_error time_limit

import threading

shared = [0]


def flip():
    while True:
        shared[:] = [1, 2, 4]
        shared[:] = [9]


def ordered(numbers):
    threading.Thread(target=flip, daemon=True).start()
    return shared
