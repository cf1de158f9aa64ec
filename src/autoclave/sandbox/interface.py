"""Interface of every backend: a `Sandbox` opens a `Cell` per program; a cell runs tests, each in a process of its own.

Output of a cell is never trusted, and no expected answer goes in. The sandbox moves bytes; the judge and its runner
define their meaning.
"""

from dataclasses import dataclass
from typing import Protocol, Self

from autoclave.config.levels import Level
from autoclave.core import Outcome


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test. All are enforced, and the outcome names the one that ended the test; see `core.Ended`.

    A limit that shows as a failed call ends only a program that fails by it: one that catches the error goes on.
    The time that a test waits for a core is added to `wall_s`, up to `given_back_s`; if None, up to `wall_s`.
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
        """Most seconds that waiting for a core adds to the wall limit."""
        return self.wall_s if self.given_back_s is None else self.given_back_s


@dataclass(frozen=True, slots=True)
class Profile:
    """The interpreter that a program finds: modules imported beforehand, and text that runs before its source.

    The preamble runs once, before any program, in the module that the program will run in; every test starts from a
    copy of that state. `packages` are top-level modules outside of the standard library that a cell shows, and
    `paths` other files and folders of the host that it shows read-only at the same place. `memory_mb` is the most that
    any cell of it will be allowed, where that may be more than the sandbox's own limit. `is_warmed` allows
    warm-ups: no state of preamble and packages depends on whether a program has run before; see `Runner`.
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
    """Source of the code that runs the program in its cell. It holds no answers and is not trusted either.

    It uses the standard library only and defines two functions, or three.

    `prepare(content, place)` is called once per cell, in its first process, with the bytes given to `Sandbox.open`.
    Its result is the `program` of every test; an exception is a compile error (`SyntaxError` with its line).
    `place(name, content)` puts an executable file into the cell, read-only, and returns its path.

    `run(test)` is called in the process of each test and does not return. `test` has `main` (the module where the
    preamble has run), `program`, `forget_program()` (drop what the program defined) and `report(account)` (see
    `Outcome.detail`; its first word is `-`, or the limit that explains an exit code other than 0: one of `core.Ended`
    that has error numbers, or the run is a `SandboxFault`). Descriptors 0, 1 and 2 are the test's streams; in a session
    3 is the channel: four bytes of length, big-endian, then the frame.

    With `is_warmed`, `warm_up()` returns a sample: content, standard input, and frames of the channel. Before the first
    program, and if the profile allows it, the zygote runs both functions on the sample a few times, so that Python's
    one-time work is done; that makes tests faster. A runner that keeps state of a test must not be warmed.
    """

    name: str
    source: str
    is_warmed: bool = False


class Session(Protocol):
    """One running test that exchanges frames of bytes with the judge, on descriptors of its own."""

    def send(self, frame: bytes) -> None:
        """Send a frame to the program. A closed channel is not an error here; it shows in the outcome."""

    def receive(self) -> bytes | None:
        """Return the next frame, or None if the test ended without one, exceeded a limit or broke the framing."""
        ...

    def close(self) -> Outcome:
        """Wait for the end of the test, by itself or by a limit, and return its outcome."""
        ...

    def end(self) -> Outcome:
        """Kill the test and return its outcome. A test that still ran is ended by SIGKILL."""
        ...


class Cell(Protocol):
    """One confined program. Each `run` or `session` is a process of its own on a fresh file system."""

    compile_error: str | None
    """Error that the runner's `prepare` raised; then no test can be run."""

    def run(self, stdin: bytes) -> Outcome:
        """Run the program with `stdin`.

        Raises:
            SandboxFault: the cell died for reasons that are not the program's.
        """
        ...

    def run_ahead(self, tests: list[tuple[bytes, ...]]) -> list[Outcome]:
        """Run tests in order, each with its input, while they are short and print what is given with it.

        Returns outcomes of the first and of those that followed. What a test is to print stays out of the cell. Raises
        as `run` does; the fault of one that followed is raised by the next call.
        """
        ...

    def exchange(self, frame: bytes | None, stdin: bytes = b"") -> tuple[Outcome, bytes | None]:
        """Run the program with `stdin` and at most one frame. Return the outcome and the first frame that it sent.

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
        """Kill all processes and remove all files."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


class Sandbox(Protocol):
    """Makes cells. Safe to use from several threads."""

    level: Level
    """Isolation of every cell of this sandbox."""

    def open(self, content: bytes, profile: Profile, limits: Limits, runner: Runner) -> Cell:
        """Return a new cell that holds the program in `content`, as `runner` prepares it.

        Raises:
            HostError: a package or path of the profile is missing on the host.
            SandboxFault: no cell could be made.
        """
        ...

    def close(self) -> None:
        """End all cells and helper processes."""
