#: tries: returns a long list
#: task: zeros
#: verdict: accepted


def zeros(count):
    return [0] * count
