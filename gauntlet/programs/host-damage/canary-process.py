#: tries: signals a process of the host by number, descriptor, group and session
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: signals a process

import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGSTOP):
    for act in (
        lambda: os.kill(CANARY_PID, number),
        lambda: os.killpg(CANARY_PID, number),
        lambda: libc.tgkill(CANARY_PID, CANARY_PID, number),
        lambda: libc.sigqueue(CANARY_PID, number, 0),
        lambda: signal.pidfd_send_signal(os.pidfd_open(CANARY_PID), number),
    ):
        try:
            act()
        except OSError:
            pass
