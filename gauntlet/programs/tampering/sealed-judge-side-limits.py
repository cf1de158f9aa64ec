#: tries: changes the pipes it was given: their size, their flags, their locks
#: task: sum
#: verdict: wrong_answer runtime_error

import fcntl
import os

F_SETPIPE_SZ, F_SETLEASE, F_ADD_SEALS = 1031, 1024, 1033
for descriptor in (0, 1, 2):
    for command, value in ((F_SETPIPE_SZ, 4096), (F_SETPIPE_SZ, 1 << 20), (F_SETLEASE, 1), (F_ADD_SEALS, 15)):
        try:
            fcntl.fcntl(descriptor, command, value)
        except OSError:
            pass
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
    except OSError:
        pass
    os.set_blocking(descriptor, False)
print("8")
