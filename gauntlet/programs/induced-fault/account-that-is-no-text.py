#: tries: raises an exception with a name of control characters, thousands long
#: task: sum
#: verdict: runtime_error

raise type("\x1b[31m\n\ud800" * 1000, (Exception,), {"__str__": lambda self: 1 / 0})
