#: tries: returns something that is merely true
#: task: is-even
#: verdict: wrong_answer


def is_even(number):
    return "True" if number % 2 == 0 else ""
