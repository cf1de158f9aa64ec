#: tries: raises as it should
#: task: raises-check
#: verdict: accepted


def square(x):
    if x < 0:
        raise ValueError("negative")
    return x * x
