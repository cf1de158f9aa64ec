#: tries: fails and writes a friendly account through the runner's own object
#: task: sum
#: verdict: runtime_error

import sys

frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if hasattr(value, "report") and hasattr(value, "forget_program"):
            value.report("- accepted 0")
    frame = frame.f_back
sys.exit(3)
