#: tries: locks files that all cells and the host share, which others can see and may wait for
#: task: door
#: verdict: wrong_answer runtime_error

import fcntl
import os
import sys

taken = []
for path in ("/dev/null", "/dev/zero", os.__file__, sys.executable, "/usr/lib", "/"):
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    for act in (
        lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB),
        lambda: fcntl.fcntl(descriptor, 1024, fcntl.F_RDLCK),  # F_SETLEASE
    ):
        try:
            act()
            taken.append(path)
        except OSError:
            pass
print("open" if taken else "shut")
