#: tries: nests operators, for which the compiler recurses
#: task: sum
#: verdict: compile_error
#: build: yes

program = "x = " + "-" * 200_000 + "1"
