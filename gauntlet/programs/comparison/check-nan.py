#: tries: returns NaN and infinity to the check
#: task: add-check
#: verdict: wrong_answer runtime_error


def add(a, b):
    return float("nan")
