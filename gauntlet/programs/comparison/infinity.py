#: tries: prints infinity and exponents beyond all numbers
#: task: sum
#: verdict: wrong_answer

print("7e99999999999999999999")
