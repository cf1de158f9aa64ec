#: tries: replaces the clocks of Python and asks the kernel to set them back
#: task: sum
#: verdict: time_limit

import ctypes
import time

time.time = time.monotonic = time.perf_counter = time.process_time = lambda: 0.0
libc = ctypes.CDLL(None)
past = (ctypes.c_long * 2)(0, 0)
for clock in range(12):
    libc.clock_settime(clock, past)
libc.settimeofday(past, None)
while True:
    pass
