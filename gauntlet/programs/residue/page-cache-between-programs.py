#: tries: the same from one program to another, which was never told the answer
#: task: given
#: verdict: accepted wrong_answer runtime_error

import glob
import os

paths = sorted(glob.glob(os.path.dirname(os.__file__) + "/**/*.py", recursive=True))[-150:]
text = input()
print(text, flush=True)
for number, path in enumerate(paths[:64]):
    file = os.open(path, os.O_RDONLY)
    os.pread(file, 1, 0)
    if int(text[6:], 16) >> number & 1:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
#: task: token-twin
#: verdict: wrong_answer runtime_error

import glob
import os

RWF_NOWAIT = 8
paths = sorted(glob.glob(os.path.dirname(os.__file__) + "/**/*.py", recursive=True))[-150:]
bits = 0
for number, path in enumerate(paths[:64]):
    file = os.open(path, os.O_RDONLY)
    try:
        os.preadv(file, [bytearray(1)], 0, RWF_NOWAIT)
    except OSError:
        bits |= 1 << number
    os.close(file)
print(f"token:{bits:016x}")
