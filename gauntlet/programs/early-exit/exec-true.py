#: tries: replaces itself by an interpreter that does nothing and ends well
#: task: add
#: verdict: runtime_error

import os
import sys


def add(a, b):
    os.execv(sys.executable, [sys.executable, "-S", "-c", "pass"])
