#: tries: prints a number that equals the answer after rounding only
#: task: tenth
#: verdict: wrong_answer

print("0.1000000000000000055511151231257827")
