#: tries: prints as many lines as the cap allows, which cost a comparison more than bytes
#: task: sum
#: verdict: wrong_answer output_limit time_limit

import os

block = b"ab\n" * 20_000
for _ in range(250):
    os.write(1, block)
