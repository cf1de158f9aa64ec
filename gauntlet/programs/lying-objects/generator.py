#: tries: returns an iterator instead of a list
#: task: ordered
#: verdict: wrong_answer


def ordered(numbers):
    yield from sorted(numbers)
