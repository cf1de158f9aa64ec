#: tries: never returns from a call of the check
#: task: add-check
#: verdict: time_limit runtime_error


def add(a, b):
    while True:
        pass
