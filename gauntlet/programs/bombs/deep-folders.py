#: tries: nests folders with long names deeper than any path may be, so that they are hard to remove
#: task: sum
#: verdict: wrong_answer runtime_error time_limit
#: harms: makes folders that are hard to remove

import os

name = "gauntlet-" + "x" * 240
for _ in range(3000):
    try:
        os.mkdir(name)
        os.chdir(name)
    except OSError:
        break
