"""The seccomp program of a cell: which system calls are refused, as bytes for the kernel.

Pure functions; `linux.py` loads it, once, in the zygote, and processes inherit it. The first process of a cell still
has to mount, so `mount` and `umount2` pass here: a test holds no capability and is refused by the kernel itself.

It refuses calls that namespaces do not confine (keyrings, vsock and other sockets), access to other processes, memory
that no limit counts (memfd, System V, pages given to pipes), resources counted per user of the host (inotify), queries
about files that all cells share (page cache, leases, notices, lock holders), clocks of other processes, leaving the
core that the judge chose, and wide kernel interfaces that honest programs do not need.
`socketpair` stays; `clone3` reports "not implemented", so that libc falls back to `clone`, whose flags can be read.
"""

import errno
import sys

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_ABSENT = _ERRNO | errno.ENOSYS

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
# A cell is made with new pid and mount namespaces; processes below the zygote may not make others.
_FORBIDDEN_CLONE_FLAGS = 0x10000000 | 0x40000000 | 0x04000000 | 0x02000000 | 0x00000080

_LOAD_NUMBER = (0x20, 0, 0, 0)
_LOAD_ARCHITECTURE = (0x20, 0, 0, 4)
_LOAD_FIRST_ARGUMENT = (0x20, 0, 0, 16)
_LOAD_SECOND_ARGUMENT = (0x20, 0, 0, 24)
_IS_NEGATIVE = (0x45, 0, 1, 0x80000000)

# name: (x86_64, aarch64); -1 where a processor has no such call
_REFUSED = {
    "socket": (41, 198), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "unshare": (272, 97), "setns": (308, 268), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "personality": (135, 92), "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "lookup_dcookie": (212, 18), "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236),
    "set_mempolicy_home_node": (450, 450), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "vmsplice": (278, 75), "inotify_init": (253, -1), "inotify_init1": (294, 26),
    "fadvise64": (221, 223), "readahead": (187, 213), "mincore": (27, 232), "cachestat": (451, 451),
    "flock": (73, 32), "sync": (162, 81), "syncfs": (306, 267), "sync_file_range": (277, 84),
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "ioprio_set": (251, 30),
}  # fmt: skip

# Calls that are allowed with one first argument only: the caller itself (0) as process, AF_UNIX (1) as family.
_ONLY_WITH = {
    "prlimit64": (302, 261, 0),
    "sched_setscheduler": (144, 119, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
    "socketpair": (53, 199, 1),
}
# Refused as well where the first process of a cell does not mount.
_MOUNTING = {"mount": (165, 40), "umount2": (166, 39)}

# Landlock does not cover these. A test that shares its user could change other files of that user.
_CHANGING_METADATA = {
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "lchown": (94, -1), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
# Clocks with a negative number are those of other processes.
_ON_CLOCKS = {
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "timer_create": (222, 107),
}
_HARMLESS_OVER_A_FOLDER = {
    "flock", "fadvise64", "readahead", "mincore", "cachestat", "sync", "syncfs", "sync_file_range", "memfd_create",
    "inotify_init", "inotify_init1", "setpriority", "sched_setaffinity", "ioprio_set", "get_mempolicy", "personality",
}  # fmt: skip
_NETWORK = (2, 10)  # AF_INET, AF_INET6
_NEW_PROCESS_OR_MOUNT = 0x20000000 | 0x00020000 | 0x08000000
_PRLIMIT = (302, 261)
_FCNTL = (72, 25)
_REFUSED_COMMANDS = (1024, 1026, 5, 36)  # F_SETLEASE, F_NOTIFY, F_GETLK, F_OFD_GETLK
_PREADV2 = (327, 286)
_CLONE = (56, 220)
_CLONE3 = (435, 435)


def _jump_if_equal(value: int, skip_if_not: int) -> "tuple[int, int, int, int]":
    return (0x15, 0, skip_if_not, value)


def _give(verdict: int) -> "tuple[int, int, int, int]":
    return (0x06, 0, 0, verdict)


def filter_program(machine: str, *, may_mount: bool = True) -> bytes:
    """Return the filter for the processor `machine`, as an array of `struct sock_filter`."""
    column, program = _opening(machine)
    program += [_jump_if_equal(_CLONE3[column], 1), _give(_ABSENT)]
    any_forbidden_flag = (0x45, 0, 1, _FORBIDDEN_CLONE_FLAGS)
    program += [_jump_if_equal(_CLONE[column], 4), _LOAD_FIRST_ARGUMENT, any_forbidden_flag]
    program += [_give(_REFUSE), _give(_ALLOW)]
    for *numbers, argument in _ONLY_WITH.values():
        program += [_jump_if_equal(numbers[column], 4), _LOAD_FIRST_ARGUMENT, _jump_if_equal(argument, 1)]
        program += [_give(_ALLOW), _give(_REFUSE)]
    program += [_jump_if_equal(_PREADV2[column], 1), _give(_ABSENT)]  # libc falls back to preadv
    for numbers in _ON_CLOCKS.values():
        program += [_jump_if_equal(numbers[column], 4), _LOAD_FIRST_ARGUMENT, _IS_NEGATIVE]
        program += [_give(_REFUSE), _give(_ALLOW)]
    program += [_jump_if_equal(_FCNTL[column], 2 + 2 * len(_REFUSED_COMMANDS)), _LOAD_SECOND_ARGUMENT]
    for command in _REFUSED_COMMANDS:
        program += [_jump_if_equal(command, 1), _give(_REFUSE)]
    program += [_give(_ALLOW)]
    program += _refusals(_REFUSED if may_mount else _REFUSED | _MOUNTING, column)
    return _packed(program)


def command_filter(machine: str, *, has_network: bool) -> bytes:
    """Return the filter for commands that a user would run on the host: it allows more than that of a judged program.

    Calls on files of the cell, on own memory and on cores are allowed. Sockets can be made only for streams over the
    network of the cell, if it has one: those in the file system could lead to the host.
    """
    column, program = _opening(machine)
    program += [_jump_if_equal(_CLONE3[column], 1), _give(_ABSENT)]
    any_forbidden_flag = (0x45, 0, 1, _FORBIDDEN_CLONE_FLAGS | _NEW_PROCESS_OR_MOUNT)
    program += [_jump_if_equal(_CLONE[column], 4), _LOAD_FIRST_ARGUMENT, any_forbidden_flag]
    program += [_give(_REFUSE), _give(_ALLOW)]
    program += [_jump_if_equal(_PRLIMIT[column], 4), _LOAD_FIRST_ARGUMENT, _jump_if_equal(0, 1)]
    program += [_give(_ALLOW), _give(_REFUSE)]
    if has_network:
        families = [rule for family in _NETWORK for rule in (_jump_if_equal(family, 1), _give(_ALLOW))]
        program += [_jump_if_equal(_REFUSED["socket"][column], 2 + len(families)), _LOAD_FIRST_ARGUMENT]
        program += [*families, _give(_REFUSE)]
    allowed = _HARMLESS_OVER_A_FOLDER | ({"socket", "connect"} if has_network else set[str]())
    refused = {name: numbers for name, numbers in _REFUSED.items() if name not in allowed}
    return _packed(program + _refusals(refused | _MOUNTING, column))


def metadata_filter(machine: str) -> bytes:
    """Return a second filter, for tests only: it refuses changes of modes, owners, times and attributes of files."""
    column, program = _opening(machine)
    return _packed(program + _refusals(_CHANGING_METADATA, column))


def _opening(machine: str) -> "tuple[int, list[tuple[int, int, int, int]]]":
    """Return the column of the tables for this processor, and instructions that kill calls of another."""
    column = list(_ARCHITECTURES).index(machine)
    program = [_LOAD_ARCHITECTURE, (0x15, 1, 0, _ARCHITECTURES[machine]), _give(_KILL_PROCESS), _LOAD_NUMBER]
    if machine == "x86_64":
        program += [(0x35, 0, 1, _X32_BIT), _give(_KILL_PROCESS)]
    return column, program


def _refusals(table: "dict[str, tuple[int, int]]", column: int) -> "list[tuple[int, int, int, int]]":
    program: list[tuple[int, int, int, int]] = []
    for numbers in table.values():
        if numbers[column] >= 0:
            program += [_jump_if_equal(numbers[column], 1), _give(_REFUSE)]
    return program


def _packed(program: "list[tuple[int, int, int, int]]") -> bytes:
    """Return an array of `struct sock_filter`."""
    return b"".join(
        code.to_bytes(2, sys.byteorder) + bytes((skip_if, skip_if_not)) + value.to_bytes(4, sys.byteorder)
        for code, skip_if, skip_if_not, value in [*program, _give(_ALLOW)]
    )
