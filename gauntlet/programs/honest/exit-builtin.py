#: tries: ends by exit() in the middle
#: task: sum
#: verdict: accepted

print(sum(map(int, input().split())))
exit()
print("never")
