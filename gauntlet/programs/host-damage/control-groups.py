#: tries: makes and enters control groups of the host
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: may make control groups

import os

for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"):
    try:
        os.mkdir(root + "/" + MARK)
        with open(root + "/" + MARK + "/cgroup.procs", "w") as file:
            file.write("0")
        print("open")
    except OSError:
        pass
