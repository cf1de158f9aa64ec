#: tries: overflows the stack of native code
#: task: sum
#: verdict: runtime_error time_limit

nested = []
for _ in range(10**6):
    nested = [nested]
repr(nested)
