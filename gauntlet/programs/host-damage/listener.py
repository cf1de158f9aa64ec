#: tries: opens a port, an abstract socket and a socket file, in a daemon
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: leaves a server

import os
import socket
import time

if os.fork() == 0:
    os.setsid()
    kept = []
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", OPEN_PORT)),
        (socket.AF_INET, ("0.0.0.0", OPEN_PORT)),
        (socket.AF_UNIX, "\0" + MARK),
        (socket.AF_UNIX, "/tmp/" + MARK),
    ):
        try:
            server = socket.socket(family)
            server.bind(address)
            server.listen()
            kept.append(server)
        except OSError:
            pass
    if kept:
        time.sleep(10)
    os._exit(0)
time.sleep(0.05)
