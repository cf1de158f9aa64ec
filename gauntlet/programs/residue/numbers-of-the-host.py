#: tries: asks the kernel about the whole host: load, memory, processes, other processes' settings
#: task: door
#: verdict: wrong_answer runtime_error
#: known: docs/concepts/sandbox.md, "What it does not do": figures of the kernel that all of the host shares

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(1024)
done = []
if libc.sysinfo(buffer) == 0 and any(buffer.raw[8:]):
    done.append("sysinfo")
try:
    os.getloadavg()
    done.append("load")
except OSError:
    pass
for path in ("/proc/meminfo", "/proc/loadavg", "/sys/devices/system/cpu/online", "/proc/stat", "/proc/net/dev"):
    if os.path.exists(path):
        done.append(path)
print("open" if done else "shut")
