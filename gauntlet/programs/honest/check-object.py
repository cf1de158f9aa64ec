#: tries: returns an object of the preamble's class
#: task: point-check
#: verdict: accepted


def halfway(a, b):
    return Point((a.x + b.x) / 2, (a.y + b.y) / 2)  # noqa: F821  of the preamble
