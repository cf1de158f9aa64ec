#: tries: leaves the line end away where bytes are compared
#: task: sum-exact
#: verdict: wrong_answer

print(sum(map(int, input().split())), end="")
