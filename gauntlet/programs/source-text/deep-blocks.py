#: tries: nests blocks and functions
#: task: sum
#: verdict: compile_error
#: build: yes

program = "\n".join(" " * depth + "if 1:" for depth in range(3000)) + "\n" + " " * 3000 + "print(8)"
