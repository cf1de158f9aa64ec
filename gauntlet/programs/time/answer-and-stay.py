#: tries: answers at once and then never ends
#: task: sum
#: verdict: time_limit

import time

print(sum(map(int, input().split())), flush=True)
time.sleep(1000)
