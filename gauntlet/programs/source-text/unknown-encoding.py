#: tries: declares an encoding that does not exist
#: task: sum
#: verdict: wrong_answer compile_error
#: build: yes

program = "# coding: no-such-encoding\nprint(8)"
