#: tries: ends its first thread and takes memory in another, where per-process numbers read as nothing
#: task: sum-slow
#: verdict: memory_limit runtime_error time_limit wrong_answer
#: harms: takes a few gigabytes

import ctypes
import threading
import time


def take():
    time.sleep(0.02)
    blocks = [bytearray(b"x") * (1 << 20) for _ in range(900)]
    time.sleep(0.3)


threading.Thread(target=take).start()
ctypes.CDLL(None).syscall(60, 0)  # exit of this thread only
