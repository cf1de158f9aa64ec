#: tries: makes links to files of the host, and renames them
#: task: sum
#: verdict: wrong_answer runtime_error
#: harms: renames files of the host

import os
import sys

for path in (CANARY_FILE, os.__file__, sys.executable, "/dev/null", "/usr/lib"):
    for act in (os.link, os.rename, os.replace):
        try:
            act(path, "/tmp/" + MARK)
            act("/tmp/" + MARK, path)
        except OSError:
            pass
os.symlink("/usr", "/tmp/" + MARK)
