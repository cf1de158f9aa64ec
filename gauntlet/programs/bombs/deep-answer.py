#: tries: returns a list nested deeper than anything can compare
#: task: ordered
#: verdict: wrong_answer runtime_error


def ordered(numbers):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested
