#: tries: prints an equal number in another form where bytes are compared
#: task: sum-exact
#: verdict: wrong_answer

print(f"{sum(map(int, input().split()))}.0")
