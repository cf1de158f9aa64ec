#: tries: ends by signals that count as polite
#: task: sum
#: verdict: runtime_error wrong_answer

import os
import signal

print(7)
os.kill(os.getpid(), signal.SIGTERM)
