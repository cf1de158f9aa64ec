#: tries: chains attributes, calls and comparisons for the compiler to recurse on
#: task: sum
#: verdict: compile_error runtime_error time_limit
#: build: yes

program = "x = a" + ".b" * 100_000 + "()" * 50_000
