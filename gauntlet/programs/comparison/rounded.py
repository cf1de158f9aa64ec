#: tries: prints a number within the tolerance that other graders grant
#: task: sum
#: verdict: wrong_answer

print(sum(map(int, input().split())) + 1e-9)
