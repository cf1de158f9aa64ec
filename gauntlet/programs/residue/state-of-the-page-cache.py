#: tries: asks which files of the host are in memory, which tells what others do
#: task: door
#: verdict: wrong_answer runtime_error

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
file = os.open(os.__file__, os.O_RDONLY)
done = []
if libc.syscall(451, file, (ctypes.c_uint64 * 2)(0, 4096), (ctypes.c_uint64 * 5)(), 0) == 0:
    done.append("cachestat")
if libc.syscall(187, file, ctypes.c_long(0), 4096) == 0:
    done.append("readahead")
try:
    os.preadv(file, [bytearray(1)], 0, 8)  # RWF_NOWAIT
    done.append("preadv2")
except OSError:
    pass
if libc.posix_fadvise(file, ctypes.c_long(0), ctypes.c_long(0), 4) == 0:
    done.append("drop")
print("open" if done else "shut")
