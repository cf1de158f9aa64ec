#: tries: makes as many memory maps as the kernel allows
#: task: sum
#: verdict: wrong_answer runtime_error time_limit memory_limit

import mmap

kept = []
for _ in range(70_000):
    kept.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
