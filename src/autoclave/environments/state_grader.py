"""Grade the files and rows that an episode left, by conditions that are evaluated outside of its reach.

The tables of a database are read in a sealed cell of its own: a hostile file can act on nothing but that cell, which
holds no expected value. What comes out is data. Views, triggers and virtual tables are never
evaluated, and a database with generated columns is not read.
"""

import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from autoclave.core import Closing, Ended, ExhaustedFault, FaultError, HostError, InputError, Program, SandboxFault
from autoclave.core.rollout import EndState, Reward, Rollout, TaskItem
from autoclave.core.verdict import Status
from autoclave.environments.verdicts import VALUES, verdict_of, verdict_of_fault
from autoclave.judge.plain_run import PlainRunner, RunOrder

Value = None | int | float | str | bytes
Row = tuple[Value, ...]
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.EIO)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of a table, in the order in which they are stored."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


class DamagedState(Exception):
    """A database of an end state cannot be read. Conditions that need it do not hold."""


class _Files(Mapping[str, bytes]):
    """The files of an end state. Paths that were left out are there, and cannot be read."""

    def __init__(self, state: EndState) -> None:
        self._state = state

    def __getitem__(self, path: str) -> bytes:
        if path in self._state.left_out:
            raise DamagedState(f"{path}: {self._state.left_out[path]}")
        return self._state.files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.files.keys() | self._state.left_out.keys())

    def __len__(self) -> int:
        return len(self._state.files.keys() | self._state.left_out.keys())


class State:
    """An end state as conditions read it."""

    def __init__(self, state: EndState | None, runner: PlainRunner) -> None:
        self.files: Mapping[str, bytes] = _Files(state or EndState({}))
        self._runner = runner

    def tables(self, path: str) -> Mapping[str, Table]:
        """Return the tables of the SQLite file at `path`, with what its journals hold.

        Raises:
            DamagedState: it is missing or no sound database, or reading it exceeds a limit of the sandbox.
            SandboxFault: the cell failed.
        """
        names = (path, f"{path}-wal", f"{path}-journal")
        copied = {f"state.db{name[len(path) :]}": self.files[name] for name in names if name in self.files}
        if "state.db" not in copied:
            raise DamagedState(f"{path}: missing")
        try:
            result = self._runner.run(_READER, RunOrder(files=copied, fetch=("tables.json",), decides=True))
        except InputError as error:  # more bytes than a cell holds
            raise DamagedState(f"{path}: {error}") from None
        if result.outcome.ended is not Ended.EXITED or "tables.json" not in result.files:
            raise DamagedState(f"{path}: cannot be read as a database ({result.outcome.ended})")
        found = json.loads(result.files["tables.json"])
        return {name: Table(tuple(columns), tuple(map(_row, rows))) for name, columns, rows in found}


_READER = Program(
    """
import json, sqlite3
connection = sqlite3.connect("file:state.db?vfs=unix-none", uri=True)  # a cell refuses some operations on locks
connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
for pragma in ("locking_mode = EXCLUSIVE", "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
    connection.execute(f"PRAGMA {pragma}")
assert connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
names = connection.execute(
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
)
tables = []
for (name,) in names.fetchall():
    generated = connection.execute("SELECT 1 FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)", (name,)).fetchone()
    assert not generated, "a column that is computed when it is read"
    rows = connection.execute('SELECT * FROM main."' + name.replace('"', '""') + '"')
    tables.append((name, [column[0] for column in rows.description], rows.fetchall()))
with open("tables.json", "w") as file:
    json.dump(tables, file, default=lambda value: {"hex": value.hex()})
""",
    "python",
)


def _row(values: list[Value | dict[str, str]]) -> Row:
    return tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in values)


def changed_files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    """Return the paths of files that were added, changed or removed."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def changed_rows(before: Table, after: Table) -> tuple[list[Row], list[Row]]:
    """Return the rows that went and the rows that came, each as often as it did. A changed row is in both.

    Values of different types differ, also 5 and 5.0.
    """
    old, new = (Counter((tuple(map(type, row)), row) for row in table.rows) for table in (before, after))
    return [row for _, row in (old - new).elements()], [row for _, row in (new - old).elements()]


ConditionsOf = Callable[[TaskItem], Mapping[str, Callable[[State], bool]]]
"""Gives the predicates of an item's end state, by name."""


class StateGrader(Closing):
    """Evaluates the conditions of an item on the end state. Safe to use from several threads.

    With `binary` the reward is 1 if all hold, else 0; with `fraction`, the share that holds.
    """

    def __init__(self, runner: PlainRunner, conditions_of: ConditionsOf, reward: str = "binary") -> None:
        self._runner, self._conditions_of, self._reward = runner, conditions_of, reward
        self._pool = ThreadPoolExecutor(2, "state-grader")

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        return self._pool.submit(self._grade, rollout)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _grade(self, rollout: Rollout) -> Reward:
        item, level, state = rollout.item, self._runner.level, State(rollout.end_state, self._runner)
        try:
            failures = [_failure_of(name, holds, state, item) for name, holds in self._conditions_of(item).items()]
        except SandboxFault as fault:
            return Reward.of(verdict_of_fault(fault, self._runner, item.id, level), VALUES[self._reward])
        if not failures:
            raise InputError(f"task {item.task!r}, item {item.id!r}: no conditions: an item needs at least one")
        statuses = [Status.WRONG_ANSWER if failure else Status.ACCEPTED for failure in failures]
        return Reward.of(verdict_of(statuses, failures, item.id, level), VALUES[self._reward])


def _failure_of(name: str, holds: Callable[[State], bool], state: State, item: TaskItem) -> str:
    """Return what to say of a condition that does not hold, else nothing."""
    try:
        found: object = holds(state)
    except DamagedState as damage:
        return f"{name}: {damage}"
    except UnboundLocalError as error:  # a loop that the state made empty
        return f"{name} raised {type(error).__name__}"
    except (FaultError, InputError, HostError, NameError):
        raise
    except (OSError, MemoryError) as error:  # other numbers, and none, come of what the state holds
        if isinstance(error, MemoryError) or error.errno in _EXHAUSTED:
            raise ExhaustedFault(f"task {item.task!r}, item {item.id!r}: condition {name!r}: {error}") from error
        return f"{name} raised {type(error).__name__}"
    except Exception as error:  # noqa: BLE001  by what the state holds: no policy may end the run
        return f"{name} raised {type(error).__name__}"
    if found and found is not True:
        place = f"task {item.task!r}, item {item.id!r}: condition {name!r}"
        raise InputError(f"{place} returned {found!r}: must return True or False")
    return "" if found else f"{name} does not hold"
