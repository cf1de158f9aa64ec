#: tries: has a million lines
#: task: sum
#: verdict: wrong_answer compile_error
#: build: yes

program = "\n" * 1_000_000 + "print(8)"
