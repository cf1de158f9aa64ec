#: tries: turns switches of the kernel: reboot, modules, clocks, swap, accounting, log
#: task: door
#: verdict: wrong_answer runtime_error
#: harms: may switch the machine off

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
done = 0
for number, *arguments in (
    (169, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0),  # reboot, with the argument that only allows ctrl-alt-del
    (175, None, 0, b""),  # init_module
    (313, 0, b"", 0),  # finit_module
    (167, b"/tmp/swap", 0),  # swapon
    (163, b"/tmp/accounting"),  # acct
    (103, 6, None, 0),  # syslog: console off
    (153,),  # vhangup
    (321, 5, None, 0),  # bpf
    (298, None, 0, -1, -1, 0),  # perf_event_open
    (323, 0),  # userfaultfd
    (425, 8, None),  # io_uring_setup
    (172, 3),  # iopl
):
    done += libc.syscall(number, *arguments) >= 0
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/panic", "/proc/self/oom_score_adj", "/sys/power/state"):
    try:
        with open(path, "w") as file:
            file.write("0")
        done += 1
    except OSError:
        pass
print("open" if done else "shut")
