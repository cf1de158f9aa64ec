#: tries: asks for memory in one piece
#: task: sum
#: verdict: memory_limit runtime_error
#: harms: takes a few gigabytes

block = b"x" * (4 << 30)
