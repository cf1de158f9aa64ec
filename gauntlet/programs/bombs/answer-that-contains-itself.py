#: tries: returns a list that contains itself, and one that doubles at each level
#: task: ordered
#: verdict: wrong_answer runtime_error memory_limit time_limit


def ordered(numbers):
    doubled = [1]
    for _ in range(200):
        doubled = [doubled, doubled]
    if numbers:
        return doubled
    doubled.append(doubled)
    return doubled
