#: tries: has the kernel send signals to process 1 on behalf of a pipe or a socket
#: task: sum
#: verdict: wrong_answer runtime_error time_limit
#: harms: signals other processes

import fcntl
import os
import signal
import socket

F_SETSIG, F_SETOWN_EX = 10, 15
left, right = socket.socketpair()
read, write = os.pipe()
for descriptor in (left.fileno(), read, 0, 1, 2):
    for owner in (1, os.getppid(), -1):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETOWN, owner)
                fcntl.fcntl(descriptor, F_SETSIG, int(number))
                fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            except OSError:
                pass
            right.send(b"x")
            os.write(write, b"x")
            os.read(read, 1)
