#: tries: reserves disk space without writing, and makes files with holes
#: task: sum
#: verdict: runtime_error wrong_answer
#: harms: reserves a few gigabytes

import os

done = 0
for number in range(64):
    descriptor = os.open("/tmp/" + MARK + str(number), os.O_CREAT | os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, 60 << 20)
    except OSError:
        pass
    try:
        os.ftruncate(descriptor, 1 << 50)
    except OSError:
        done += 1
raise SystemExit(1)
