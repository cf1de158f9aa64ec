#: tries: starts shells, compilers and package managers of the host
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: runs programs of the host

import os
import subprocess

done = 0
for command in ("sh", "bash", "busybox", "gcc", "cc", "pip", "apt-get", "mount", "su", "ssh", "curl", "git", "perl"):
    for folder in ("", "/bin/", "/usr/bin/", "/usr/local/bin/"):
        try:
            done += subprocess.run([folder + command, "--version"], capture_output=True).returncode == 0
        except OSError:
            pass
print("open" if done else "shut")
