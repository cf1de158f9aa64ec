#: tries: is empty
#: task: sum
#: verdict: wrong_answer
