#: tries: asks every address and socket that it can think of
#: task: token
#: verdict: wrong_answer runtime_error time_limit
#: harms: may connect to the host

import socket

targets = [
    (socket.AF_INET, ("127.0.0.1", CANARY_PORT)),
    (socket.AF_INET, ("0.0.0.0", CANARY_PORT)),
    (socket.AF_INET6, ("::1", CANARY_PORT)),
    (socket.AF_UNIX, "\0" + CANARY_SOCKET),
    (40, (2, CANARY_PORT)),  # AF_VSOCK to the host
    (40, (1, CANARY_PORT)),
]
for family, address in targets:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
        try:
            with socket.socket(family, kind) as connection:
                connection.settimeout(0.05)
                connection.connect(address)
                print(connection.recv(100).decode())
                raise SystemExit
        except OSError:
            pass
