#: tries: types into the terminal that the judge was started from
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: types into the terminal

import fcntl
import os

TIOCSTI, TIOCSCTTY = 0x5412, 0x540E
for path in ("/dev/tty", "/dev/console", "/dev/pts/0", "/dev/ptmx", "/dev/tty0"):
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        continue
    fcntl.ioctl(descriptor, TIOCSCTTY, 0)
    fcntl.ioctl(descriptor, TIOCSTI, b"\n")
    print("open")
for descriptor in (0, 1, 2):
    try:
        fcntl.ioctl(descriptor, TIOCSTI, b"\n")
        print("open")
    except OSError:
        pass
