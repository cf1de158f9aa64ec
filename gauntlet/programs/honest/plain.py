#: tries: the usual solution
#: task: sum
#: verdict: accepted

print(sum(map(int, input().split())))
