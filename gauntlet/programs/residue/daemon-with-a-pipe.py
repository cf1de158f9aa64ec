#: tries: a daemon in a session of its own keeps the text and offers it in a named pipe
#: task: recall
#: verdict: wrong_answer runtime_error time_limit
#: harms: leaves a process for a while

import os
import time

text = input()
path = "/tmp/" + MARK
if text:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deadline = time.time() + 20
            while time.time() < deadline:
                try:
                    os.mkfifo(path)
                except OSError:
                    pass
                try:
                    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                    os.write(descriptor, text.encode())
                except OSError:
                    time.sleep(0.001)
        os._exit(0)
    time.sleep(0.02)
else:
    try:
        text = os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 100).decode()
    except OSError:
        pass
print(text)
