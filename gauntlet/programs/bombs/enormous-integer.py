#: tries: returns an integer of a million digits where a small one is expected
#: task: add
#: verdict: wrong_answer runtime_error


def add(a, b):
    return 1 << 3_000_000
