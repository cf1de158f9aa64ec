#: tries: prints one word too many where words are compared
#: task: sum-tokens
#: verdict: wrong_answer

print(sum(map(int, input().split())), 7)
