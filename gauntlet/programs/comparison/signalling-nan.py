#: tries: prints numbers that raise or compare oddly: sNaN, NaN, infinity
#: task: sum
#: verdict: wrong_answer

print("sNaN")
