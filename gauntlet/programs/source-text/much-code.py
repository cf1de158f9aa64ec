#: tries: is a few megabytes of code, which takes long to compile
#: task: sum
#: verdict: compile_error wrong_answer time_limit memory_limit runtime_error
#: build: yes

program = "x = [1, 2, 3, (4, 5), {6: 7}, lambda a, b=8: a + b]\n" * 60_000
