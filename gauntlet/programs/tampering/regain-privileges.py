#: tries: makes namespaces, mounts, changes its user and asks for capabilities
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: may mount over folders of the host

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
done = []
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
    done.append(libc.unshare(flag) == 0)
done.append(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0)
done.append(libc.mount(b"none", b"/", None, 32 | 4096, None) == 0)
done.append(libc.umount2(b"/tmp", 2) == 0)
done.append(libc.pivot_root(b".", b".") == 0 if hasattr(libc, "pivot_root") else False)
for number in (0, 1, 1001):
    for call in (os.setuid, os.setgid, os.seteuid):
        try:
            call(number)
            done.append(number == 0)
        except OSError:
            pass
for path in ("/usr/bin/su", "/usr/bin/mount", "/bin/su", "/usr/bin/sudo"):
    done.append(os.path.exists(path))
print("open" if any(done) else "shut")
