#: tries: kills itself as a host without memory would
#: task: sum
#: verdict: runtime_error

import os
import signal

print(sum(map(int, input().split())), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
