#: tries: returns a subclass of list that lies about length, items and equality
#: task: ordered
#: verdict: wrong_answer


class Yes(list):
    def __eq__(self, other):
        return True

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([1, 2, 3])

    def __getitem__(self, index):
        return [1, 2, 3][index]

    def __reduce__(self):
        return list, ([1, 2, 3],)


def ordered(numbers):
    return Yes([9, 9])
