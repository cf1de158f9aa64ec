#: tries: raises its stack limit and recurses deeply
#: task: sum
#: verdict: accepted

import resource
import sys

resource.setrlimit(resource.RLIMIT_STACK, (resource.getrlimit(resource.RLIMIT_STACK)[1],) * 2)
sys.setrecursionlimit(10**6)


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


assert depth(20_000) == 20_000
print(sum(map(int, input().split())))
