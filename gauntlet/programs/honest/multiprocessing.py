#: tries: computes in a pool of processes
#: task: sum-slow
#: verdict: accepted

from multiprocessing import get_context

if __name__ == "__main__":
    with get_context("fork").Pool(2) as pool:
        print(sum(pool.map(int, input().split())))
