#: tries: holds half of a surrogate pair
#: task: sum
#: verdict: compile_error wrong_answer
#: build: yes

program = "print('\ud800')"
