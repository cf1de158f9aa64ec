#: tries: looks for the socket between process 1 and the judge, and speaks on it
#: task: sum
#: verdict: wrong_answer runtime_error time_limit

import os
import socket
import struct

report = struct.pack("<idddq", 0, 0.0, 0.0, 0.0, 0) + bytes(256)
for descriptor in range(3, 1024):
    try:
        with socket.socket(fileno=os.dup(descriptor)) as found:
            found.send(report)
    except OSError:
        pass
print(8)
