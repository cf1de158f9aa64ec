#: tries: sleeps for a moment
#: task: sum
#: verdict: accepted

import time

time.sleep(0.05)
print(sum(map(int, input().split())))
