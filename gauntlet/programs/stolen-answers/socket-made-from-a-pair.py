#: tries: takes a socketpair, which is allowed, and sends from it to sockets outside
#: task: token
#: verdict: wrong_answer runtime_error time_limit
#: harms: may connect to the host

import ctypes
import socket

libc = ctypes.CDLL(None, use_errno=True)
name = b"\0" + CANARY_SOCKET.encode()
address = (1).to_bytes(2, "little") + name
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    left, right = socket.socketpair(socket.AF_UNIX, kind)
    for call in (
        lambda: left.connect(name),
        lambda: left.sendto(b"give", name),
        lambda: left.sendmsg([b"give"], [], 0, name),
        lambda: left.bind(b"\0" + MARK.encode()),
        lambda: left.listen(),
    ):
        try:
            call()
        except OSError:
            pass
    libc.connect(left.fileno(), address, len(address))
    left.settimeout(0.05)
    try:
        print(left.recv(100).decode())
        break
    except OSError:
        pass
