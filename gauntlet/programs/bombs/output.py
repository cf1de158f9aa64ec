#: tries: prints without end
#: task: sum
#: verdict: output_limit

import os

while True:
    os.write(1, b"7\n" * 30_000)
