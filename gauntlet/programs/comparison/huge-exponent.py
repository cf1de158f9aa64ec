#: tries: prints a number of a few digits that would be enormous when written out
#: task: sum
#: verdict: wrong_answer

print("1e999999999")
