#: tries: prints bytes that are no text, each of which becomes a character of several bytes
#: task: sum
#: verdict: wrong_answer output_limit

import os

os.write(1, "\U0001f600".encode())
for _ in range(250):
    os.write(1, b"\xff" * 60_000)
