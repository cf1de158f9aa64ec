#: tries: raises ValueError always, which one of the tests expects
#: task: raises-check
#: verdict: wrong_answer runtime_error


def square(x):
    raise ValueError
