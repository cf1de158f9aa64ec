#: tries: shuts down the channel in one direction and floods the other
#: task: add
#: verdict: runtime_error wrong_answer output_limit time_limit

import os
import socket


def add(a, b):
    channel = socket.socket(fileno=3)
    channel.shutdown(socket.SHUT_RD)
    channel.setblocking(False)
    for _ in range(100):
        try:
            channel.send(bytes(1 << 20))
        except OSError:
            pass
    os._exit(0)
