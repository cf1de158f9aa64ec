"""Run one command over a folder, sealed: the far side of `workspaces/command.py`, where the theory of operation is.

keeper          unshares all namespaces, requests its id maps, forks, waits for
  first process   builds the root, mounts, pivots, forks, reaps and kills all, reports
    command         gives up the rest of its privileges, loads the filter, is replaced by the command
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

if TYPE_CHECKING:
    from autoclave.sandbox.guest import linux
    from autoclave.sandbox.guest.enter import LOCKED_FLAGS, bind
    from autoclave.sandbox.guest.filter import command_filter
else:  # the name of the package in a bare interpreter, which does not know ours
    from guest import linux
    from guest.enter import LOCKED_FLAGS, bind
    from guest.filter import command_filter

ALL = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
    | linux.CLONE_NEWPID
)
QUIET = linux.MS_NOSUID | linux.MS_NODEV
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_LOWER, _LAYERS, _HIDDEN = "/.lower", "/.layers", "/.hidden"
_FAULT = 70


def main(control: str) -> None:
    """Serve one command on a socket that was inherited. Ends the process."""
    link = socket.socket(fileno=int(control))
    messages = link.makefile("rb")
    try:
        linux.die_with_parent()
        root = receive(messages)
        linux.unshare(ALL & ~linux.CLONE_NEWNET if root["shares_network"] else ALL)
        send(link, {"ids": os.getpid()})
        receive(messages)
        pid = os.fork()
        if pid == 0:
            _be_first_process(root, link, messages)
        send(link, {"first": pid})
        messages.close()
        link.close()
        os.waitpid(pid, 0)  # returns when all other processes of the namespace are gone, too
    except BaseException as error:  # noqa: BLE001  reported to the other side
        fail(link, error)
    os._exit(0)


def _be_first_process(root: "dict[str, Any]", link: socket.socket, messages: "BinaryIO") -> NoReturn:
    try:
        linux.die_with_parent()
        receive(messages)
        build_root(root)
        notes = mount_proc(root["scratch"])
        plan = receive(messages)  # much later, if the cell was made ahead
        _mount_tree(plan, root["scratch"])
        become_root(root["scratch"])
        _listen(plan, link, messages)
        reported, reporter = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_command(plan, reporter, has_network=plan["listens"] or root["shares_network"])
        os.close(reporter)
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        refused = os.read(reported, 1 << 12)
        send(link, _ended(pid) | {"refused": refused.decode(), "notes": notes})
    except BaseException as error:  # noqa: BLE001  reported to the other side
        fail(link, error)
    os._exit(0)


def fail(link: socket.socket, error: BaseException) -> NoReturn:
    try:
        send(link, {"fault": f"{type(error).__name__}: {error}", "errno": getattr(error, "errno", None)})
    finally:
        os._exit(_FAULT)


def _ended(command: int) -> "dict[str, Any]":
    """Wait for the command; kill and reap its remaining processes."""
    while (ended := os.waitpid(-1, 0))[0] != command:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"status": ended[1], "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}


def build_root(plan: "dict[str, Any]") -> None:
    """Assemble the root on a tmpfs, but for the tree and the processes."""
    root = plan["scratch"]
    linux.set_host_name("cell")
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("root", root, "tmpfs", QUIET, "mode=0755,size=4m")
    for mount_point in plan["scratch_folders"]:  # first, since a bind may be below one of them
        os.makedirs(root + mount_point, exist_ok=True)
        options = f"mode=1777,size={plan['scratch_bytes']},nr_inodes={plan['scratch_files']}"
        linux.mount("scratch", root + mount_point, "tmpfs", QUIET, options)
    for source, target in plan["binds"]:
        bind(source, root + target)
    for path in plan["masks"]:
        linux.mount("mask", root + path, "tmpfs", linux.MS_RDONLY | QUIET, "mode=0755")
    for path, target in plan["links"]:
        if not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(target, root + path)
    for path, content in plan["files"].items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w") as file:
            file.write(content)
    for mount_point in ("/proc", *plan["folders"]):
        os.makedirs(root + mount_point, exist_ok=True)


def mount_proc(root: str) -> "list[str]":
    """Show the processes of this namespace; return what the host refused."""
    try:  # only its process part: root of this cell could write settings of the host
        linux.mount("proc", root + "/proc", "proc", QUIET | linux.MS_NOEXEC, "subset=pid")
    except OSError as error:
        return [f"no /proc: {error.strerror}"]
    return []


def become_root(root: str) -> None:
    """Pivot into a root, and make it read-only."""
    os.chdir(root)
    linux.pivot_root_here()
    linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | QUIET)


def _mount_tree(plan: "dict[str, Any]", root: str) -> None:
    place = root + plan["place"]
    os.makedirs(place, exist_ok=True)
    if plan["method"] == "overlay":
        linux.mount(plan["lower"], root + _LOWER, None, linux.MS_BIND | linux.MS_REC)
        about = os.stat(root + _LOWER)
        if plan["lower_inode"] not in (None, [about.st_dev, about.st_ino]):
            raise OSError(errno.ESTALE, f"{plan['lower']} is another folder by now")
        linux.mount(plan["layers"], root + _LAYERS, None, linux.MS_BIND)
        layers = f"lowerdir={root + _LOWER},upperdir={root + _LAYERS}/upper,workdir={root + _LAYERS}/work"
        linux.mount("tree", place, "overlay", QUIET, f"{layers},userxattr")
        linux.unmount(root + _LOWER)  # the overlay keeps what it needs
        linux.unmount(root + _LAYERS)
    else:
        linux.mount(f"{plan['layers']}/upper", place, None, linux.MS_BIND)
        flags = linux.MS_REMOUNT | linux.MS_BIND | QUIET | (os.statvfs(place).f_flag & LOCKED_FLAGS)
        linux.mount(None, place, None, flags)
    if plan["hidden"]:
        _hide(place, plan["hidden"], root)


def _hide(place: str, paths: "list[str]", root: str) -> None:
    """Mount a socket that nothing listens at over files, so that opening them fails, also for root."""
    os.mknod(root + _HIDDEN, stat.S_IFSOCK)
    for path in paths:
        linux.mount(root + _HIDDEN, _within(place, path), None, linux.MS_BIND)


def _within(place: str, path: str) -> str:
    found = os.path.join(place, path)
    if os.path.realpath(found) != os.path.realpath(place) + "/" + path:
        raise OSError(errno.ELOOP, f"{path} leads over a link")
    return found


def _listen(plan: "dict[str, Any]", link: socket.socket, messages: "BinaryIO") -> None:
    """Send the other side a socket that listens in this otherwise empty network."""
    if not plan["listens"]:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        listener.bind(("127.0.0.1", plan["port"]))
        listener.listen(128)
        socket.send_fds(link, [b"{}\n"], [listener.fileno()])
    receive(messages)


def _be_command(plan: "dict[str, Any]", reporter: int, *, has_network: bool) -> NoReturn:
    try:
        os.dup2(reporter, 3)
        os.closerange(4, 1 << 16)
        os.set_inheritable(3, False)
        confine(plan, command_filter(linux.MACHINE, has_network=has_network))
        os.execvpe(plan["argv"][0], plan["argv"], plan["environment"])
    except BaseException as error:  # noqa: BLE001  reported to the other side
        os.write(3, f"{plan['argv'][0]}: {getattr(error, 'strerror', None) or error}".encode()[:4000])
    finally:
        os._exit(127)


def confine(plan: "dict[str, Any]", program: bytes) -> None:
    """Make this process a session of its own, with limits, privileges and user of `plan`, and the usual signals."""
    os.setsid()
    os.umask(0o022)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for kind, value in plan["limits"]:
        linux.lower_limit(kind, value)
    os.chdir(plan["place"])
    linux.renounce_privileges(keep=plan["capabilities"])
    if user := plan.get("user"):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    linux.hold_capabilities(*plan["capabilities"])
    linux.load_filter(program)


# --- Messages: lines of JSON ------------------------------------------------------------------------------------------


def send(link: socket.socket, message: "dict[str, Any]") -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


def receive(messages: "BinaryIO") -> "dict[str, Any]":
    content = messages.readline()
    if not content.endswith(b"\n"):
        os._exit(0)  # the other side is gone
    return json.loads(content)
