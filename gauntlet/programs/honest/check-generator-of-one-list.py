#: tries: yields one list again and again, changed in place
#: task: rotations-check
#: verdict: accepted


def rotations(numbers):
    for _ in range(len(numbers)):
        yield numbers
        numbers.append(numbers.pop(0))
