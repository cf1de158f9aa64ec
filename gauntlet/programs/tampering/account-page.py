#: tries: fills the page that process 1 shares with the test, to confuse its report
#: task: sum
#: verdict: runtime_error wrong_answer

import gc
import mmap
import os

for thing in gc.get_objects():
    if type(thing) is mmap.mmap:
        thing[:] = b"\xff" * len(thing)
os._exit(9)
