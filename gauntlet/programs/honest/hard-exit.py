#: tries: flushes and leaves by os._exit, which is quicker
#: task: sum
#: verdict: accepted

import os
import sys

print(sum(map(int, input().split())))
sys.stdout.flush()
os._exit(0)
