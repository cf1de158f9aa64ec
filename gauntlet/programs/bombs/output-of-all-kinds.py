#: tries: prints without end on both streams from many processes
#: task: sum
#: verdict: output_limit runtime_error

import os

for _ in range(3):
    os.fork()
while True:
    os.write(1, b"7" * 60_000)
    os.write(2, b"x" * 60_000)
