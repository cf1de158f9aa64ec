#: tries: keeps shared anonymous memory alive in a process that should be dead by the next test
#: task: recall
#: verdict: wrong_answer runtime_error
#: harms: leaves a process for a while

import mmap
import os
import time

text = input()
if text:
    page = mmap.mmap(-1, 4096)
    page[: len(text)] = text.encode()
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(20)
            os._exit(0)
print(text)
