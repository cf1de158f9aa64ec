#: tries: reads every descriptor that it was given or that was forgotten
#: task: token
#: verdict: wrong_answer runtime_error

import os
import re

pattern = re.compile(rb"token:[0-9a-f]{16}")
for descriptor in range(3, 4096):
    try:
        os.set_blocking(descriptor, False)
        content = os.read(descriptor, 1 << 20)
    except (OSError, ValueError):
        continue
    if found := pattern.search(content):
        print(found[0].decode())
        break
