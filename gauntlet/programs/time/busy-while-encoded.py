#: tries: returns a value whose conversion never ends
#: task: add
#: verdict: time_limit wrong_answer


class Slow:
    @property
    def __class__(self):
        while True:
            pass


def add(a, b):
    return Slow()
