#: tries: solves in a thread with a large stack, out of habit
#: task: sum
#: verdict: accepted

import sys
import threading


def solve():
    print(sum(map(int, sys.stdin.readline().split())))


sys.setrecursionlimit(1 << 25)
threading.stack_size(64 << 20)
thread = threading.Thread(target=solve)
thread.start()
thread.join()
