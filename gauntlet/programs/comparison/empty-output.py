#: tries: prints nothing, which matches every prefix
#: task: lines
#: verdict: wrong_answer
