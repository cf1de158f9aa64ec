#: tries: raises SystemExit(0), which a grader may take for a normal end
#: task: add
#: verdict: runtime_error


def add(a, b):
    raise SystemExit(0)
