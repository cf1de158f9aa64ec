#: tries: raises exceptions in other threads and leaves one that never ends
#: task: sum
#: verdict: time_limit runtime_error wrong_answer

import ctypes
import threading

for thread in threading.enumerate():
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
