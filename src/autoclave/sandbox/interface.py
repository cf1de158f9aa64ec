"""Interface of every backend: a `Sandbox` opens a `Cell` per program; a cell runs tests, each in a process of its own.

Nothing that comes out of a cell is trusted, and no expected answer ever goes in. The sandbox moves bytes; what they
mean is between the judge and the runner that it sends along.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from autoclave.config.levels import Level
from autoclave.core import Outcome


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test. All are enforced, and the outcome names the one that ended the test; see `core.Ended`.

    A limit that shows as a failed call ends only a program that fails by it: one that catches the error goes on.
    What a test waits for a core is added to `wall_s`, up to `given_back_s`; without that, up to `wall_s` once again.
    """

    cpu_s: float
    wall_s: float
    memory_mb: int
    output_bytes: int
    processes: int
    disk_mb: int
    open_files: int
    given_back_s: float | None = None

    @property
    def most_given_back_s(self) -> float:
        """Seconds that waiting can add to the wall clock's limit."""
        return self.wall_s if self.given_back_s is None else self.given_back_s


@dataclass(frozen=True, slots=True)
class Profile:
    """The interpreter that a program finds: modules imported beforehand, and text that runs before its source.

    The preamble runs once, before any program is there, in the module that the program will run in; every test starts
    from a copy of that state. `packages` are top-level modules outside of the standard library that a cell shows, and
    `paths` other files and folders of the host that it shows read-only at the same place. `memory_mb` is the most that
    any cell of it will be allowed, where that may be more than the sandbox's own limit. `is_warmed` says that
    nothing which preamble and packages leave in the interpreter notices that a program has run there; see `Runner`.
    """

    name: str
    preamble: str = ""
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    recursion_limit: int = 1000
    int_max_str_digits: int = 4300
    memory_mb: int = 0
    is_warmed: bool = False


@dataclass(frozen=True, slots=True)
class Runner:
    """Source of the code that runs in the cell around the program. It holds no answers and is not trusted either.

    It uses the standard library only and defines two functions, or three.

    `prepare(content, place)` is called once per cell, in its first process, with the bytes given to `Sandbox.open`.
    What it returns is the `program` of every test; an exception is a compile error (`SyntaxError` with its line).
    `place(name, content)` puts an executable file into the cell, read-only, and returns its path.

    `run(test)` is called in the process of each test and does not return. `test` has `main` (the module where the
    preamble has run), `program`, `forget_program()` (drop what the program defined) and `tell(account)` (see
    `Outcome.detail`; its first word is `-`, or the limit that explains an exit code other than 0: one of `core.Ended`
    that has error numbers, or the run is a `SandboxFault`). Descriptors 0, 1 and 2 are the test's streams; in a session
    3 is the channel: four bytes of length, big-endian, then the frame.

    With `is_warmed`, `warm_up()` returns a sample: content, standard input, and what comes on the channel. Before
    the first program, and if the profile is one for that, the zygote runs both functions on it a few times, so that
    Python has done by then what it does once; that makes tests faster. A runner that keeps anything of a test in its
    own variables must not be warmed.
    """

    name: str
    source: str
    is_warmed: bool = False


class Session(Protocol):
    """One running test that exchanges frames of bytes with the judge, on descriptors of its own."""

    def send(self, frame: bytes) -> None:
        """Hand a frame to the program. A closed peer is not an error: the outcome tells."""
        ...

    def receive(self) -> bytes | None:
        """The next frame, or None when there will be none: the test ended, hit a limit or broke the framing."""
        ...

    def close(self) -> Outcome:
        """Wait for the end of the test, by itself or by a limit, and say how it went."""
        ...

    def end(self) -> Outcome:
        """Have the test killed now and say how it went until then. A kill that came in time shows as SIGKILL."""
        ...


class Cell(Protocol):
    """One confined program. Each `run` or `session` is a process of its own on a fresh file system."""

    compile_error: str | None
    """Error that the runner's `prepare` raised; then nothing can be run."""

    def run(self, stdin: bytes) -> Outcome:
        """Run the program with `stdin`.

        Raises:
            SandboxFault: the cell died for reasons that are not the program's.
        """
        ...

    def session(self, stdin: bytes = b"") -> Session:
        """Start the program with `stdin` and exchange frames with it.

        Raises:
            SandboxFault: the cell died for reasons that are not the program's.
        """
        ...

    def close(self) -> None:
        """Kill what is left and remove every trace."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """Makes cells. Safe to use from several threads."""

    level: Level
    """Isolation of every cell of this sandbox."""

    def open(self, content: bytes, profile: Profile, limits: Limits, runner: Runner) -> Cell:
        """A new cell that holds the program in `content`, as `runner` understands it.

        Raises:
            HostError: the host lacks what the profile names.
            SandboxFault: no cell could be made.
        """
        ...

    def close(self) -> None:
        """End all cells and helper processes."""
        ...
