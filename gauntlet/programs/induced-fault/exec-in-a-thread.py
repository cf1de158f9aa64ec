#: tries: replaces the process by another from a thread that is not the first
#: task: sum
#: verdict: wrong_answer runtime_error

import os
import sys
import threading

threading.Thread(target=os.execv, args=(sys.executable, [sys.executable, "-S", "-c", "print(8)"])).start()
threading.Event().wait()
