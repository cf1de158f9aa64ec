#: tries: prints exactly the expected bytes
#: task: sum-exact
#: verdict: accepted

print(sum(map(int, input().split())))
