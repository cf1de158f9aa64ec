#: tries: locks memory, makes it secret, and asks for huge pages
#: task: sum
#: verdict: wrong_answer runtime_error memory_limit
#: harms: locks memory

import ctypes
import mmap

libc = ctypes.CDLL(None, use_errno=True)
libc.mlockall(3)
libc.syscall(447, 0)  # memfd_secret
libc.syscall(319, b"x", 0)  # memfd_create
for flags in (0x40000, 0x2000, 0x40000 | 0x2000):
    try:
        block = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
        libc.mlock(ctypes.addressof(ctypes.c_char.from_buffer(block)), 64 << 20)
    except OSError:
        pass
