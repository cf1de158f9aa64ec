"""Sealed cells from Linux namespaces: no daemon, no privileges needed, about the CPU of a plain fork per test.

Theory of operation. There are four kinds of processes:

    judging process      holds problems and expected answers; many threads
      zygote             one per slot and profile; exec'ed, so nothing of its parent is in its memory; leaves the host:
        |                user, mount, pid (for its children), net, ipc, uts and cgroup namespaces, a read-only root with
        |                the interpreter only, no capability that outlives it, no_new_privs, seccomp; then imports what
        |                programs use and waits
        +- process 1     one per cell, that is per program; cloned into new pid and mount namespaces; compiles
             |           the program, mounts a fresh tmpfs on /tmp for each test, measures, kills and reaps
             +- test     one per test; forked; own session, limits, no capability, as root another user than process 1

Channels. The judging process and a zygote share a socket for requests ("open", "close"). For each cell a new
socket goes through the zygote to process 1: first limits and source, later per test the ends of three pipes (standard
streams) and, in a session, of a socket for frames. So test data go from the judging process straight into the test:
neither zygote nor process 1 ever holds any, and a test holds only its own. Expected answers go nowhere.

Termination. At a limit, the judging process orders process 1 to kill all (`kill -1`), reap and report. A process 1
that does not obey, or a cell that is closed: the zygote kills process 1, and the kernel everything below it. A zygote
that does not obey: the judging process kills it, and its death kills process 1. A judging process that is gone: the
zygote sees that on a process descriptor and ends, process 1 sees its socket close. Nothing depends on clean-up code.

Measuring. Each zygote is put into a control group of its own when it starts, where the host permits it; its cells
are born there. The judging process reads CPU time and memory of a running test from the group, and the kernel refuses
what exceeds the memory limit. Elsewhere it adds up the processes in the host's /proc every few hundredths of a second.
At the end process 1 adds the usage of the reaped processes (`wait4`). The clock is the judging process's. The account
that a test leaves in a page shared with process 1 can only explain a failure.

Failures are of two kinds: a failure of the program is an `Outcome`; a failure of the sandbox is a `SandboxFault`.
"""
