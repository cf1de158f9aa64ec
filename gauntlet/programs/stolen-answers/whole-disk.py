#: tries: reads every file that it can see
#: task: token
#: verdict: wrong_answer runtime_error time_limit
#: harms: may read the files of the host

import os
import re

pattern = re.compile(rb"token:[0-9a-f]{16}")
for folder, _, names in os.walk("/"):
    if "python3" in folder:  # last: the interpreter, which is large
        continue
    for name in names:
        path = os.path.join(folder, name)
        try:
            if os.path.isfile(path) and (found := pattern.search(open(path, "rb").read(1 << 22))):
                print(found[0].decode())
                os._exit(0)
        except OSError:
            pass
