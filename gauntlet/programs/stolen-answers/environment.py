#: tries: reads the environment, its own and the one that libc remembers
#: task: token
#: verdict: wrong_answer runtime_error

import ctypes
import os
import re

text = repr(dict(os.environ))
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
index = 0
while environ and environ[index]:
    text += repr(environ[index])
    index += 1
found = re.search(r"token:[0-9a-f]{16}", text)
print(found[0] if found else "none")
