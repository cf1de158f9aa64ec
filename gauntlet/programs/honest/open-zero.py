#: tries: opens descriptor 0 as a file
#: task: sum
#: verdict: accepted

print(sum(map(int, open(0).read().split())))
