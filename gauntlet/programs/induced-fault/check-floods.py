#: tries: hands the check results that are too large for its cell
#: task: ordered-check
#: verdict: runtime_error wrong_answer memory_limit output_limit time_limit


def ordered(numbers):
    return [[0] * 1000] * 100_000
