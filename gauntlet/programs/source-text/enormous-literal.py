#: tries: holds a number of a million digits
#: task: sum
#: verdict: compile_error runtime_error
#: build: yes

program = "print(" + "7" * 1_000_000 + ")"
