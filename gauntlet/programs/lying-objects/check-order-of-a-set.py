#: tries: returns a set, whose order is not that of the numbers, where the check looks at the order
#: task: order-check
#: verdict: wrong_answer


def different(numbers):
    return set(frozenset(numbers))
