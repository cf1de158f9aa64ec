#: tries: answers at once and computes for ever in an exit handler
#: task: sum
#: verdict: time_limit

import atexit


def forever():
    while True:
        pass


atexit.register(forever)
print(sum(map(int, input().split())), flush=True)
