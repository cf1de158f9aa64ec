#: tries: computes for ever
#: task: sum
#: verdict: time_limit

while True:
    pass
