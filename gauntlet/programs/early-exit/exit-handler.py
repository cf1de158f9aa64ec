#: tries: fails, and turns the failure into success in an exit handler
#: task: sum
#: verdict: runtime_error wrong_answer

import atexit
import os

atexit.register(os._exit, 0)
raise ValueError
