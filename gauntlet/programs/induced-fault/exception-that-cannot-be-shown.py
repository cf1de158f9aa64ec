#: tries: fails while its failure is reported
#: task: add
#: verdict: runtime_error


class Meta(type):
    @property
    def __name__(cls):
        raise KeyboardInterrupt


class Broken(BaseException, metaclass=Meta):
    @property
    def __traceback__(self):
        raise SystemExit(0)

    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


def add(a, b):
    raise Broken
