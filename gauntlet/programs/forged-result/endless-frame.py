#: tries: announces a frame of four gigabytes and sends it
#: task: add
#: verdict: output_limit runtime_error time_limit

import os

os.write(3, b"\xff\xff\xff\xff")
while True:
    os.write(3, bytes(1 << 16))
