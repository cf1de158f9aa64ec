#: tries: prints NaN, which no number equals
#: task: tenth
#: verdict: wrong_answer

print("NaN")
