#: tries: dies with a core dump
#: task: sum
#: verdict: runtime_error
#: harms: may leave a core file

import ctypes
import os
import resource

try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (OSError, ValueError):
    pass
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
os.abort()
