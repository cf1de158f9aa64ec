#: tries: prints the right answer and then dies by a segmentation fault
#: task: sum
#: verdict: runtime_error

import ctypes

print(sum(map(int, input().split())), flush=True)
ctypes.string_at(1)
