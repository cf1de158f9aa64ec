#: tries: fills its memory with the text, and looks for it in the next test's fresh memory
#: task: recall
#: verdict: wrong_answer runtime_error time_limit

import ctypes
import mmap

text = input()
if text:
    blocks = [mmap.mmap(-1, 1 << 20) for _ in range(64)]
    for block in blocks:
        block[:] = (text.encode() + b"\0\0") * ((1 << 20) // 24) + bytes((1 << 20) % 24)
else:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for _ in range(64):
        content = ctypes.string_at(libc.malloc(1 << 18), 1 << 18)
        place = content.find(b"token:")
        if place >= 0:
            text = content[place : place + 22].decode()
            break
print(text)
