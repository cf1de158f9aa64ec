#: tries: a wrong function that changes what it was given instead of answering
#: task: add-check
#: verdict: runtime_error wrong_answer

import sys


def add(a, b):
    for frame in sys._current_frames().values():
        while frame:
            frame.f_locals.update(expected=0, candidate=None, passed=True)
            frame = frame.f_back
    return None
