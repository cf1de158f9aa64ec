#: tries: prints as many words in one line as the cap allows, where numbers are expected
#: task: sum
#: verdict: wrong_answer output_limit time_limit

import os

block = b"12 " * 20_000
for _ in range(250):
    os.write(1, block)
