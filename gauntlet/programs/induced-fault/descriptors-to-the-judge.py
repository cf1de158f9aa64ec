#: tries: sends descriptors and urgent data over the channel, which somebody has to close
#: task: add
#: verdict: runtime_error wrong_answer

import os
import socket


def add(a, b):
    channel = socket.socket(fileno=3)
    for _ in range(50):
        read, write = os.pipe()
        socket.send_fds(channel, [b"\0"], [read, write])
        os.close(read)
        os.close(write)
    try:
        channel.send(b"x", socket.MSG_OOB)
    except OSError:
        pass
    os._exit(0)
