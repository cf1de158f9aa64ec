#: tries: nests parentheses deeper than the parser can go
#: task: sum
#: verdict: compile_error
#: build: yes

program = "x = " + "(" * 100_000 + ")" * 100_000
