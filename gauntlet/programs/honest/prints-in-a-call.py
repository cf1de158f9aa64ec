#: tries: prints while it is called
#: task: add
#: verdict: accepted

print("loading")


def add(a, b):
    print("adding", a, b, flush=True)
    return a + b
