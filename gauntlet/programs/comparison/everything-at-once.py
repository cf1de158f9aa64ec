#: tries: returns all possible answers
#: task: is-even
#: verdict: wrong_answer


def is_even(number):
    return [True, False]
