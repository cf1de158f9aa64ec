#: tries: returns a set of numbers that all have the same hash, which makes a table slow
#: task: zeros
#: verdict: wrong_answer runtime_error


def zeros(count):
    return [0] * count if count < 10 else {number * (2**61 - 1) for number in range(1, 3000)}
