#: tries: ends the first thread, so that the process is a zombie that still runs
#: task: sum
#: verdict: time_limit runtime_error wrong_answer

import ctypes
import threading


def busy():
    while True:
        pass


threading.Thread(target=busy, daemon=True).start()
ctypes.CDLL(None).syscall(60, 0)
