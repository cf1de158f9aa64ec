#: tries: returns the right value and computes for ever while the value is forgotten
#: task: add
#: verdict: accepted time_limit


class Busy:
    def __del__(self):
        while True:
            pass


def add(a, b):
    kept = Busy()
    globals()["kept"] = kept
    return a + b
