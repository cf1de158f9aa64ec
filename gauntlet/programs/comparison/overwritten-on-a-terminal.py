#: tries: prints all answers, of which a terminal would show the right one
#: task: answer
#: verdict: wrong_answer

print("no\b\byes\x1b[2K\ryes\x00")
