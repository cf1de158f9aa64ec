#: tries: has os._exit raise, and hides the runner's other ways to end
#: task: add
#: verdict: runtime_error wrong_answer time_limit

import os


def add(a, b):
    def refuse(code):
        raise KeyboardInterrupt

    os._exit = refuse
    return -1
