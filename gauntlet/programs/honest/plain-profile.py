#: tries: the usual solution in an interpreter without imports
#: task: sum-plain
#: verdict: accepted

import sys

print(sum(int(word) for word in sys.stdin.readline().split()))
