#: tries: replaces the streams by faster ones, as competitors do
#: task: sum
#: verdict: accepted

import io
import os
import sys

sys.stdin = io.TextIOWrapper(io.BytesIO(os.read(0, 1 << 16)))
sys.stdout = output = io.StringIO()
print(sum(map(int, sys.stdin.readline().split())))
sys.__stdout__.write(output.getvalue())
