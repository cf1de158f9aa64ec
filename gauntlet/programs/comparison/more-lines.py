#: tries: prints the answer and then more
#: task: lines
#: verdict: wrong_answer

for number in [*input().split(), "", "4"]:
    print(number)
