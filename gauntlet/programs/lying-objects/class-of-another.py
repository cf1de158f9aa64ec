#: tries: is a list according to __class__ only
#: task: ordered
#: verdict: wrong_answer runtime_error


class Disguise:
    __class__ = list

    def __iter__(self):
        return iter([1, 2, 3])

    def __len__(self):
        return 3

    def __eq__(self, other):
        return True


def ordered(numbers):
    return Disguise()
