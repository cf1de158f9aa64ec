#: tries: starts threads until the kernel refuses
#: task: sum
#: verdict: runtime_error time_limit memory_limit
#: harms: starts thousands of threads

import threading
import time

for _ in range(3000):
    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
