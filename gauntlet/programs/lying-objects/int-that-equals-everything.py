#: tries: returns a subclass of int that equals everything and lies about its digits
#: task: add
#: verdict: wrong_answer


class Yes(int):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __index__(self):
        return 7

    def __int__(self):
        return 7

    def __repr__(self):
        return "7"

    __str__ = __format__ = __repr__
    __hash__ = int.__hash__


def add(a, b):
    return Yes(-1000)
