#: tries: returns a result as large as the channel takes
#: task: add
#: verdict: wrong_answer output_limit memory_limit runtime_error time_limit


def add(a, b):
    return [[]] * 4_000_000
