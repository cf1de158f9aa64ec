#: tries: the usual function
#: task: add
#: verdict: accepted


def add(a, b):
    return a + b
