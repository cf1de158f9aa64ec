"""Conditions see files and rows of an end state as data, and a hostile database acts on nothing."""

from __future__ import annotations

import errno
import gzip
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import EndState, InputError, IsolationError, Reward, Rollout, SandboxFault, TaskItem
from autoclave.environments import State, StateGrader, Table, changed_files, changed_rows
from autoclave.environments.state_grader import DamagedState
from autoclave.judge.plain_run import PlainRunner
from autoclave.rollout.checked_rewards import graded


def rollout(files: Mapping[str, bytes], payload: Any = None, left_out: Mapping[str, str] | None = None) -> Rollout:
    item = TaskItem("repair", "one", "one", (), payload)
    return Rollout(
        item, 0, (), Reward(None, "ungraded"), length_limit=1, end_state=EndState(files, dict(left_out or {}))
    )


@pytest.fixture(scope="module")
def runner() -> Iterator[PlainRunner]:
    try:
        opened = PlainRunner(SandboxConfig())
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def database(tmp_path: Path, *statements: str, name: str = "made.db") -> dict[str, bytes]:
    """Files of a database that was left open, with its journal, as by a process that was killed."""
    connection = sqlite3.connect(tmp_path / name, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    files = {f"app.db{path.name[len(name) :]}": path.read_bytes() for path in tmp_path.glob(f"{name}*")}
    connection.close()
    return files


def grade(runner: PlainRunner, files: Mapping[str, bytes], *conditions: Callable[[State], bool]) -> Reward:
    named = {f"condition {number}": each for number, each in enumerate(conditions)}
    with StateGrader(runner, lambda item: named) as grader:
        return graded(grader, rollout(files)).result()


def users(state: State) -> tuple[Any, ...]:
    return state.tables("app.db")["users"].rows


CREATE = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, data BLOB)"
INSERT = "INSERT INTO users VALUES (1, 'Ada', x'00ff'), (2, NULL, 1.5)"
ROWS = ((1, "Ada", b"\x00\xff"), (2, None, 1.5))


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_rows_are_data_of_their_own_types_also_those_in_a_journal(runner: PlainRunner, tmp_path: Path, mode: str):
    files = database(tmp_path, f"PRAGMA journal_mode = {mode}", CREATE, INSERT)
    assert ("app.db-wal" in files) == (mode == "wal")
    assert grade(runner, files, lambda state: users(state) == ROWS).value == 1


def test_a_transaction_that_was_not_committed_is_no_state(runner: PlainRunner, tmp_path: Path):
    files = database(
        tmp_path, "PRAGMA cache_size = 1", CREATE, INSERT, "BEGIN", "INSERT INTO users VALUES (3, 'Eve', 0)"
    )
    assert grade(runner, files, lambda state: users(state) == ROWS).value == 1


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE VIEW users AS SELECT 1 AS id, 'Ada' AS name, x'00ff' AS data UNION SELECT 2, NULL, 1.5",),
        ("CREATE VIRTUAL TABLE users USING fts5(id, name, data)", "INSERT INTO users VALUES (1, 'Ada', x'00ff')"),
        ("CREATE TABLE users (id, name, data)", "INSERT INTO users VALUES ('1', 'Ada', x'00ff'), (2, NULL, 1.5)"),
        (
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name AS (iif(id = 1, 'Ada', NULL)), "
            "data AS (iif(id = 1, x'00ff', 1.5)))",
            "INSERT INTO users VALUES (1), (2)",
        ),
    ],
    ids=["view", "virtual table", "other types", "generated columns"],
)
def test_what_only_looks_like_the_rows_is_refused(runner: PlainRunner, tmp_path: Path, statements: tuple[str, ...]):
    reward = grade(runner, database(tmp_path, *statements), lambda state: users(state) == ROWS)
    assert (reward.value, reward.reason) == (0, "wrong_answer")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(4096)])
def test_a_damaged_database_holds_nothing(runner: PlainRunner, content: bytes):
    assert grade(runner, {"app.db": content}, lambda state: bool(users(state))).value == 0
    assert grade(runner, {}, lambda state: bool(users(state))).value == 0


def test_a_small_database_of_enormous_rows_is_the_fault_of_the_policy(runner: PlainRunner, tmp_path: Path):
    columns = ", ".join(f"c{n} AS (c{n - 1} || c{n - 1})" for n in range(1, 20))
    files = database(tmp_path, f"CREATE TABLE users (c0 TEXT, {columns})", "INSERT INTO users VALUES ('xxxxxxxxxx')")
    reward = grade(runner, files, lambda state: bool(users(state)))
    assert (reward.value, reward.reason) == (0, "wrong_answer")


def test_the_share_of_conditions_can_be_the_reward_and_failures_are_named(runner: PlainRunner):
    conditions = {"moved": lambda state: "b" in state.files, "kept": lambda state: state.files["a"] == b"x"}
    with StateGrader(runner, lambda item: conditions, reward="fraction") as grader:
        reward = grader(rollout({"b": b"x"})).result()
    assert reward.value == 0.5
    assert reward.verdict is not None
    assert (reward.verdict.failing_test, reward.verdict.message) == (1, "kept raised KeyError")


def test_differences_of_files_and_rows():
    assert changed_files({"a": b"1", "b": b"1", "c": b"1"}, {"a": b"1", "b": b"2", "d": b"1"}) == {"b", "c", "d"}
    before, after = Table(("id",), ((1,), (2,), (2,))), Table(("id",), (("1",), (2,), (3,)))
    assert changed_rows(before, after) == ([(1,), (2,)], [("1",), (3,)])


def test_rows_that_python_takes_for_equal_have_changed():
    went, came = changed_rows(Table(("id",), ((5,), (5.0,), (1,))), Table(("id",), ((5,), (5,), (1.0,))))
    assert (list(map(repr, went)), list(map(repr, came))) == (["(5.0,)", "(1,)"], ["(5,)", "(1.0,)"])


def test_a_path_that_was_left_out_is_there_and_cannot_be_read(runner: PlainRunner):
    state = State(EndState({"kept": b"1"}, {"link": "a symbolic link"}), runner)
    for look in (lambda: "link" in state.files, lambda: changed_files({"kept": b"1"}, state.files)):
        with pytest.raises(DamagedState, match="link: a symbolic link"):
            look()
    assert "other" not in state.files


@pytest.mark.parametrize("error", [AttributeError, EOFError, SyntaxError, AssertionError, KeyError, UnboundLocalError])
def test_no_content_makes_a_condition_end_the_run(runner: PlainRunner, error: type[Exception]):
    def raises(state: State) -> bool:
        raise error

    assert grade(runner, {}, raises).value == 0
    assert grade(runner, {}, lambda state: state.files.get("gone") and True).value == 0  # pyright: ignore


def test_a_host_that_is_out_of_something_is_not_the_fault_of_the_policy(runner: PlainRunner):
    def no_descriptor(state: State) -> bool:
        raise OSError(errno.EMFILE, "too many open files")

    def no_memory(state: State) -> bool:
        raise MemoryError

    def no_archive(state: State) -> bool:
        return bool(gzip.decompress(b"no archive"))

    assert grade(runner, {}, no_descriptor).value is None
    assert grade(runner, {}, no_memory).value is None
    assert grade(runner, {}, lambda state: bool(Path("/no/such/file").read_bytes())).value == 0
    assert grade(runner, {}, no_archive).value == 0


@pytest.mark.parametrize("answer", [1, "yes", float("nan")])
def test_a_condition_that_is_not_true_or_false_stops_the_run(runner: PlainRunner, answer: Any):
    with pytest.raises(InputError, match=r"item 'one': condition 'condition 0' returned .* must return True or False"):
        grade(runner, {}, lambda state: answer)


def test_an_item_without_conditions_stops_the_run(runner: PlainRunner):
    with pytest.raises(InputError, match="no conditions"):
        grade(runner, {})


class FailingRunner:
    """A runner whose cells fail, for a time or for good."""

    level = "sealed"

    def __init__(self, *fails: bool) -> None:
        self._fails = list(fails)

    def run(self, program: Any, order: Any) -> Any:
        if self._fails.pop(0):
            raise SandboxFault("no cell")
        return SimpleNamespace(outcome=SimpleNamespace(exit_code=0))


@pytest.mark.parametrize(("fails", "value"), [((True, True), None), ((True, False), 0.0)])
def test_a_fault_is_no_verdict_unless_a_control_program_runs(fails: tuple[bool, ...], value: float | None):
    runner: Any = FailingRunner(*fails)
    assert grade(runner, {"app.db": b"x"}, lambda state: bool(users(state))).value == value
