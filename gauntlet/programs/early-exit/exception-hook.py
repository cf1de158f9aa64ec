#: tries: fails, and turns the failure into success in the exception hook
#: task: sum
#: verdict: runtime_error wrong_answer

import os
import sys

sys.excepthook = lambda *_: os._exit(0)
raise ValueError
