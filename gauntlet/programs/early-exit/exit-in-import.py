#: tries: ends while the program is loaded, before the call
#: task: add
#: verdict: runtime_error

import os

os._exit(0)
