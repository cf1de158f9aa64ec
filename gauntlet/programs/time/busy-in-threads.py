#: tries: has many threads compute, in native code without the interpreter's lock
#: task: sum
#: verdict: time_limit

import hashlib
import threading

block = bytes(1 << 22)


def work():
    while True:
        hashlib.sha256(block)


for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
work()
