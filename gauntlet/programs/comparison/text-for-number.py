#: tries: returns the text of a number instead of the number
#: task: add
#: verdict: wrong_answer


def add(a, b):
    return str(a + b)
