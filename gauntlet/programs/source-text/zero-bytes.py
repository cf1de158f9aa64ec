#: tries: holds zero bytes
#: task: sum
#: verdict: compile_error
#: build: yes

program = "print(8)\n\0print(7)"
