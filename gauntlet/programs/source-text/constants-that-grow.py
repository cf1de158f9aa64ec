#: tries: has the compiler fold constants into gigabytes
#: task: sum
#: verdict: compile_error memory_limit runtime_error time_limit wrong_answer
#: build: yes

program = "x = " + " + ".join(["((1 << 9999) * (1 << 9999))"] * 2000) + "\ny = 'x' * 4096 * 4096\nz = (0,) * 256 * 256 * 256"
