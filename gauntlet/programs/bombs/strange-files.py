#: tries: leaves pipes, sockets, devices, links in circles, and files that nobody may touch
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: leaves files that are hard to remove

import os
import stat

os.chdir("/tmp")
for make in (
    lambda: os.mkfifo(MARK + "\n\x1b[31m"),
    lambda: os.symlink(MARK, MARK),
    lambda: os.symlink("/", "root-" + MARK),
    lambda: os.mknod("device-" + MARK, stat.S_IFBLK | 0o666, os.makedev(8, 0)),
    lambda: os.mknod("null-" + MARK, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    lambda: os.mkdir("closed-" + MARK, 0),
    lambda: os.chmod(".", 0),
):
    try:
        make()
    except OSError:
        pass
