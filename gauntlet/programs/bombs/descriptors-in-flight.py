#: tries: sends descriptors through sockets and closes them, so that they live nowhere
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: uses up descriptors of its user

import os
import socket

for _ in range(200):
    try:
        left, right = socket.socketpair()
        for _ in range(100):
            socket.send_fds(left, [b"x"], [left.fileno(), right.fileno(), 0])
        socket.send_fds(right, [b"x"], [left.fileno(), right.fileno()])
        left.close()
        right.close()
    except OSError:
        break
