#: tries: prints the right answer and then crashes; a run that fails is a failed run
#: task: sum
#: verdict: runtime_error

print(sum(map(int, input().split())), flush=True)
raise RuntimeError
