#: tries: prints in an exit handler
#: task: sum
#: verdict: accepted

import atexit

total = sum(map(int, input().split()))
atexit.register(lambda: print(total))
