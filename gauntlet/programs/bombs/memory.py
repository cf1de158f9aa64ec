#: tries: takes memory until there is none
#: task: sum-slow
#: verdict: memory_limit runtime_error
#: harms: takes a few gigabytes

blocks = []
for _ in range(4000):
    blocks.append(bytearray(1 << 20))
