#: tries: makes files, links and folders until there are no more
#: task: sum
#: verdict: runtime_error time_limit
#: harms: makes very many files

import os

folder = "/tmp/" + MARK
os.mkdir(folder)
for number in range(200_000):
    open(f"{folder}/{number}", "w").close()
    os.link(f"{folder}/{number}", f"{folder}/{number}-link")
