#: tries: returns a subclass of str that shows another text than it has
#: task: token-call
#: verdict: wrong_answer


class Yes(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    def encode(self, *a):
        return b"token:"

    def __str__(self):
        return "token:"

    __repr__ = __str__
    __hash__ = str.__hash__


def secret():
    return Yes("x")
