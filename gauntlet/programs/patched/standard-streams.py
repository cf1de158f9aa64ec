#: tries: replaces sys.stdout by an object whose text compares equal to anything
#: task: sum
#: verdict: wrong_answer runtime_error

import sys


class Anything(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    def strip(self, *a):
        return self

    def split(self, *a):
        return [self]

    __hash__ = str.__hash__


class Stream:
    closed = False
    encoding = "utf-8"

    def write(self, text):
        return Anything(text)

    def flush(self):
        pass

    def getvalue(self):
        return Anything("7")

    def fileno(self):
        return 1


sys.stdout = sys.__stdout__ = Stream()
print(Anything("7"))
