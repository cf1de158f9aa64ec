#: tries: the usual list, checked
#: task: ordered-check
#: verdict: accepted


def ordered(numbers):
    return sorted(numbers)
