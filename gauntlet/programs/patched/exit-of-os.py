#: tries: replaces os._exit, so that the runner falls through into whatever comes after it
#: task: sum
#: verdict: runtime_error wrong_answer

import os

os._exit = lambda code: print("not leaving")
