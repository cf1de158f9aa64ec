#: tries: raises an exception that claims to be of every class
#: task: raises-check
#: verdict: wrong_answer runtime_error


class Everything(BaseException):
    __class__ = ValueError

    def __eq__(self, other):
        return True


def square(x):
    raise Everything
