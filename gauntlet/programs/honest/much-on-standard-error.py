#: tries: prints 300 kB of debugging on standard error
#: task: sum
#: verdict: accepted

import sys

for number in range(30_000):
    print("debugging", file=sys.stderr)
print(sum(map(int, input().split())))
