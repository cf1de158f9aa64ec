#: tries: prints one number of fifteen million digits
#: task: sum
#: verdict: wrong_answer output_limit time_limit

import os

for _ in range(250):
    os.write(1, b"7" * 60_000)
