#: tries: is a candidate that cannot be called, so that no assertion is reached
#: task: add-check
#: verdict: runtime_error wrong_answer compile_error

add = None
