#: tries: the usual function, checked
#: task: add-check
#: verdict: accepted


def add(a, b):
    return a + b
