"""Serve workspaces, one after the other: the far side of `workspaces/local.py`, where the theory of operation is."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import stat
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

if TYPE_CHECKING:
    from autoclave.sandbox.guest import linux
    from autoclave.sandbox.guest.filter import command_filter
    from autoclave.workspaces.guest import command
else:  # the name of the package in a bare interpreter, which does not know ours
    from guest import command, linux
    from guest.filter import command_filter

_DISK = "/.disk"
_LONGEST = 4096  # characters of the path of a folder whose entries are looked at
_SESSION = """
import ast, json, linecache, os, signal, sys, traceback, types
def python(code):
    return code
def serve(descriptor):
    main, sys.argv, name = types.ModuleType("__main__"), [""], "<call>"
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    while True:
        failed = 1
        try:
            source = python(**json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
            linecache.cache[name] = len(source), None, source.splitlines(True), name
            tree = ast.parse(source, name)
            last = [tree.body.pop()] if tree.body and type(tree.body[-1]) is ast.Expr else []
            exec(compile(tree, name, "exec"), main.__dict__)
            exec(compile(ast.Interactive(last), name, "single"), main.__dict__)
            failed = 0
        except Exception as error:
            traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        os.ftruncate(descriptor, failed)
        os.kill(os.getpid(), signal.SIGSTOP)
serve(int(sys.argv[1]))
"""


def main(control: str) -> None:
    """Be the zygote, on a socket that was inherited. Ends the process."""
    link = socket.socket(fileno=int(control))
    messages = link.makefile("rb")
    try:
        driver = os.pidfd_open(os.getppid())
        plan = command.receive(messages)
        linux.unshare(command.ALL & ~linux.CLONE_NEWPID)
        command.send(link, {"ids": os.getpid()})
        command.receive(messages)
        command.build_root(plan)
        plan["filter"] = command_filter(linux.MACHINE, has_network=False)
        while True:
            command.receive(messages)
            pid = linux.clone(linux.CLONE_NEWPID | linux.CLONE_NEWNS)
            if pid == 0:
                FirstProcess(plan, link, messages, driver).serve()
            command.send(link, {"first": pid})
            os.waitpid(pid, 0)  # returns when all other processes of the namespace are gone, too
            command.send(link, {"ended": True})
    except BaseException as error:  # noqa: BLE001  reported to the other side
        command.fail(link, error)


class FirstProcess:
    """Process 1 of a workspace. It looks at the files of the policy only after all other processes are dead."""

    def __init__(self, plan: "dict[str, Any]", link: socket.socket, messages: BinaryIO, driver: int) -> None:
        self._plan, self._link, self._messages, self._driver = plan, link, messages, driver
        linux.die_with_parent()
        linux.set_dumpable(False)
        command.receive(messages)  # the driver has a hold on this process
        if refused := command.mount_proc(plan["scratch"]):
            raise OSError(refused[0])
        command.become_root(plan["scratch"])
        linux.mount("disk", _DISK, "tmpfs", command.QUIET, plan["disk"])
        for number, (place, mode) in enumerate(plan["places"]):
            os.mkdir(source := f"{_DISK}/{number}")
            os.chmod(source, mode)
            os.chown(source, plan["user"] or -1, plan["user"] or -1)
            linux.mount(source, place, None, linux.MS_BIND)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._poll = select.poll()
        for each in (link.fileno(), driver, self._woken):
            self._poll.register(each, select.POLLIN)
        self._ended: dict[int, int] = {}  # wait statuses, by number of the process
        self._session, self._code = 0, os.memfd_create("code")
        command.send(link, {"is_made": True})

    def serve(self) -> NoReturn:
        """Take calls until the workspace ends."""
        while True:
            if not self._wait():
                continue
            request = command.receive(self._messages)
            while request["tool"] == "kill":  # crossed with the report of a call
                request = command.receive(self._messages)
            if request["tool"] == "end":
                self._kill()
                os.close(self._code)  # to which the session may have written
                self._carry_out(**request["arguments"])
                os._exit(0)
            self._call(request["tool"], request["arguments"])

    def _call(self, tool: str, arguments: "dict[str, Any]") -> None:
        fcntl.fcntl(1, fcntl.F_SETFL, 0)  # all tools share this pipe, and may set its flags and size
        with contextlib.suppress(OSError):  # a process that was kept may have filled it
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 16)
        self._ended.clear()
        is_session = tool == "python"
        pid = self._resume(arguments) if is_session else self._start(lambda: _ACTS[tool](self._plan, **arguments))
        while pid not in self._ended:
            if self._wait():  # a limit is met
                command.receive(self._messages)
                self._kill(spared=0 if is_session else self._session)
        if not self._plan["keeps_processes"]:
            self._kill(spared=self._session)
        if self._session:
            os.kill(self._session, signal.SIGSTOP)  # another process may have continued it
        disk, found, said = os.statvfs(_DISK), self._ended[pid], os.fstat(self._code).st_size
        report = {
            "status": min(1, said) if os.WIFSTOPPED(found) else os.waitstatus_to_exitcode(found),
            "is_full": not (disk.f_bavail and disk.f_favail),
            "is_session_lost": is_session and not self._session,
        }
        command.send(self._link, report)

    def _resume(self, arguments: "dict[str, Any]") -> int:
        """Have the Python session run code; start one if there is none. It stops itself when it is done."""
        os.ftruncate(self._code, 0)
        os.pwrite(self._code, json.dumps(arguments).encode(), 0)
        if self._session:
            os.kill(self._session, signal.SIGCONT)
        else:
            self._session = self._start(lambda: session(self._plan, self._code))
        return self._session

    def _wait(self) -> bool:
        """Wait for a message, or a process that has ended; reap. Return whether there is a message."""
        ready = dict(self._poll.poll())
        if self._driver in ready:
            os._exit(0)
        if self._woken in ready:
            os.read(self._woken, 1 << 12)
        self._reap(os.WNOHANG | os.WUNTRACED)
        return self._link.fileno() in ready

    def _reap(self, flags: int) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, flags))[0]:
                pid, status = found
                if pid == self._session and not os.WIFSTOPPED(status):
                    self._session = 0
                if pid == self._session or not os.WIFSTOPPED(status):
                    self._ended[pid] = status

    def _kill(self, spared: int = 0) -> None:
        """Kill and reap all other processes, but one if many attempts succeed in sparing it."""
        for _ in range(200 if spared else 0):
            if not (others := [pid for pid in _running() if pid not in (1, spared)]):
                return
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap(os.WNOHANG)
            time.sleep(0.0005)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        self._reap(0)

    def _start(self, act: "Callable[[], None]") -> int:
        """Have a process act without privileges, with all output on the pipe to the driver."""
        try:
            pid = os.fork()
        except OSError:  # the session has as many processes as there may be
            self._kill()
            pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.dup2(1, 2)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.closerange(3, self._code)
            os.closerange(self._code + 1, 1 << 16)
            command.confine(self._plan, self._plan["filter"])
            act()
            status = 0
        except (OSError, ValueError, TypeError, AttributeError, MemoryError) as error:
            os.write(1, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        finally:
            os._exit(status)

    def _carry_out(self, patterns: "list[str]", most_files: int, most_bytes: int, left_out: "list[str]") -> None:
        """Send the declared regular files, and the reasons why others were left out. Nothing changes them any more."""
        files, reasons, is_cut = dict[str, str](), dict[str, str](), False
        os.chdir(self._plan["place"])
        for top, folders, names, folder in os.fwalk("."):
            is_last = top.count("/") == 64 or len(top) > _LONGEST
            for name in sorted([*folders, *names]):
                path = f"{top}/{name}"[2:]
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                wanted, unwanted = (any(fnmatchcase(path, each) for each in those) for those in (patterns, left_out))
                if unwanted or not wanted or (stat.S_ISDIR(about.st_mode) and not is_last):
                    continue
                shown = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
                if shown != path:
                    reason = "its name is not UTF-8"
                elif not stat.S_ISREG(about.st_mode):
                    reason = "no regular file, or too many folders deep"
                elif len(files) == most_files or about.st_size > most_bytes:
                    reason = f"over the limit: most_files = {most_files}, most_bytes leaves {most_bytes}"
                else:
                    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
                        files[path] = b2a_base64(file.read()).decode()
                    most_bytes -= about.st_size
                    continue
                if is_cut := len(reasons) == most_files:
                    break
                reasons[shown] = reason
            folders[:] = [] if is_last else sorted(folders)
            if is_cut:
                reasons["*"] = f"more than most_files = {most_files} are left out"
                break
        command.send(self._link, {"files": files, "left_out": reasons})


def _running() -> "Iterator[int]":
    """Yield all processes of the namespace that have not ended."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b") ")[2][:1] not in b"ZX":
                    yield int(name)


# --- In the process of a tool: everything with the privileges of the policy


def shell(plan: "dict[str, Any]", command: str, *arguments: str) -> NoReturn:
    os.execve(plan["shell"], [plan["shell"], "-c", command, "sh", *arguments], plan["environment"])


def session(plan: "dict[str, Any]", code: int) -> NoReturn:
    os.set_inheritable(code, True)
    os.execve(plan["python"], [plan["python"], "-u", "-c", _SESSION, str(code)], plan["environment"])


def read_file(plan: "dict[str, Any]", path: str, first_line: int = 1, num_lines: "int | None" = None) -> NoReturn:
    last = "$" if num_lines is None else max(1, first_line) + num_lines - 1
    shell(plan, 'sed -n "$1p" -- "$2"', f"{max(1, first_line)},{last}", path)


def search(plan: "dict[str, Any]", pattern: str, path: str = "") -> NoReturn:
    shell(plan, 'grep -rnIE -e "$@" || [ $? = 1 ]', pattern, *(["--", path] if path else []))


def write_file(_: Any, path: str, content: "str | bytes") -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def place(_: Any, files: "dict[str, str]") -> None:
    for path, content in files.items():
        write_file(_, path, a2b_base64(content))


def edit_file(_: Any, path: str, old: str, new: str) -> None:
    with open(path, "rb") as file:
        text = file.read()
    if (found := text.count(old.encode())) != 1:
        raise ValueError(f"old: occurs {found} times in {path}; must occur once. Fix: give more of the lines around it")
    write_file(_, path, text.replace(old.encode(), new.encode()))


_ACTS: "dict[str, Callable[..., None]]" = {
    each.__name__: each for each in (shell, read_file, search, write_file, place, edit_file)
}
