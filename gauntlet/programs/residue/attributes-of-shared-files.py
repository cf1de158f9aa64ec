#: tries: leaves the text in times, modes, extended attributes and locks of files that all cells share
#: task: recall
#: verdict: wrong_answer runtime_error

import os
import sys

text = input()
for path in (os.__file__, sys.executable, "/dev/null", "/dev/zero", "/dev/urandom", "/usr/lib", "/tmp", "/"):
    try:
        if text:
            os.setxattr(path, "user.gauntlet", text.encode())
        else:
            text = os.getxattr(path, "user.gauntlet").decode()
    except OSError:
        pass
    try:
        if text:
            os.utime(path, ns=(int(text[6:], 16), int(text[6:], 16)))
        elif os.stat(path).st_mtime_ns > 1 << 61:
            text = f"token:{os.stat(path).st_mtime_ns:016x}"
    except (OSError, OverflowError):
        pass
print(text)
