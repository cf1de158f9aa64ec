r"""Forged and honest end states of episodes, and what graders say of them: `python -m gauntlet.episode_course`.

A file of `episodes/` holds entries of one family. An entry is `== name`, lines `key: value` and files, each a line
`-- path` and its content; `-- $` is a shell script that runs in a workspace. BUG and GOOD stand for the code that the
episode began with and for a right one, BASE for the rows, and `\n` in a path is as in Python. `app.db` is SQL.
"""

from __future__ import annotations

import argparse
import math
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import EndState, InputError, Problem, Reward, Rollout, StdinCase, StdinTests, TaskItem
from autoclave.core.futures import completed
from autoclave.environments import Grader, ProgramGrader, State, StateGrader, Suite, SuiteGrader
from autoclave.judge.local import LocalJudge
from autoclave.judge.plain_run import PlainRunner
from autoclave.rollout.checked_rewards import graded
from autoclave.workspaces import Declared, LocalWorkspaces

FOLDER = Path(__file__).parent / "episodes"
_ROWS = """CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, active INTEGER);
INSERT INTO users VALUES (1, 'Ada', 1), (2, 'Bob', 1), (3, 'Cy', 1);
"""
_WANTED = [(1, "Ada", 1), (2, "Bob", 0), (3, "Cy", 0)]
_SUM = Problem(
    statement="Add.", tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n"), StdinCase("20 2\n", "22\n")]), id="sum"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One end state."""

    family: str
    name: str
    settings: Mapping[str, str]
    files: Mapping[str, bytes]

    @property
    def is_honest(self) -> bool:
        return self.family == "honest"

    @property
    def task(self) -> str:
        return self.settings.get("task", "suite")


@dataclass(frozen=True, slots=True)
class Result:
    """What a grader said of an entry; the value is None without a verdict, and infinite where the run would stop."""

    entry: Entry
    grader: str
    value: float | None
    message: str

    @property
    def is_well(self) -> bool:
        return self.value == float(self.entry.is_honest)


def read_episodes() -> list[Entry]:
    return [entry for path in sorted(FOLDER.glob("*.txt")) for entry in _entries_of(path)]


def _entries_of(path: Path) -> Iterator[Entry]:
    for part in path.read_text(encoding="utf-8").split("\n== ")[1:]:
        head, *parts = re.split(r"^-- ", part, flags=re.MULTILINE)
        name, *lines = head.strip().split("\n")
        settings = dict(line.split(": ", 1) for line in lines)
        files: dict[str, bytes] = {}
        for each in parts:
            given, _, text = each.partition("\n")
            files |= _files(given.replace("\\n", "\n"), text)
        yield Entry(path.stem, name, settings, files)


def _files(path: str, text: str) -> dict[str, bytes]:
    if path.endswith(".db"):
        return _database(path, text.replace("BASE", _ROWS))
    if text.strip() and not path.endswith(".py"):
        text = text.replace("\\0", "\0") if path.endswith(".raw") else text
    text = re.sub(r"\\ufeff", "\ufeff", text)
    for word, name in (("GOOD", "good.py"), ("BUG", "buggy.py")):
        text = re.sub(rf"^(\ufeff?){word}$", lambda found, name=name: found[1] + _text(name), text, flags=re.MULTILINE)
    content = b"\xff\xfe" if text == "\\xff\\xfe\n\n" else text.encode()
    if path.endswith(".crlf"):
        content = content.replace(b"\n", b"\r\n")
    if path.endswith(".long"):
        content += b"# a long line of no meaning\n" * 20_000
    return {re.sub(r"\.(crlf|long|raw)$", "", path): content}


@cache
def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _database(path: str, script: str) -> dict[str, bytes]:
    """Return the files of a database as they are while its connection is open."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder, "x.db"), isolation_level=None)
        for statement in _statements(script):
            connection.execute(statement)
        files = {path + each.name.removeprefix("x.db"): each.read_bytes() for each in Path(folder).iterdir()}
        connection.close()
    return files


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


class EpisodeCourse:
    """Graders of all tasks, on one sandbox configuration."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        judge = self._opened.enter_context(LocalJudge(SandboxConfig(), JudgeConfig(workers=2)))
        runner = self._opened.enter_context(PlainRunner(SandboxConfig()))
        self._judge, self._runner = judge, runner
        self._workspaces = self._opened.enter_context(closing(LocalWorkspaces()))
        files = {"archive moved": _is_moved, "no decoy touched": lambda state: state.files["keep.txt"] == b"kept\n"}
        self._graders: dict[str, Grader] = {
            "program": ProgramGrader(judge, "solution.py"),
            "rows": self._opened.enter_context(StateGrader(runner, lambda item: {"rows": _are_rows_right})),
            "files": self._opened.enter_context(StateGrader(runner, lambda item: files)),
            "own-reward": _naive_grader,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        self._opened.close()

    def run(self, entry: Entry) -> Iterator[Result]:
        """Grade an entry: a suite at both levels, for a forgery by the share of tests that it passes."""
        if entry.task != "suite":
            yield _result(entry, entry.task, self._graders[entry.task], self._workspaces)
            return
        levels: Any = entry.settings.get("levels", "sealed shared").split()
        for level in levels:
            suite = Suite(
                {"tests/test_pricing.py": _text("hidden.py")},
                ("shop",),
                {"shop/__init__.py": b"", "shop/pricing.py": _text("buggy.py").encode()},
                sources=entry.settings.get("sources", "*.py").split(),
                level=level,
                time_limit_s=2.0,
            )
            reward = "binary" if entry.is_honest else "fraction"
            with SuiteGrader(self._judge, lambda item, suite=suite: suite, reward, self._runner) as grader:
                yield _result(entry, level, grader, self._workspaces)


def _is_moved(state: State) -> bool:
    return state.files.get("archive/a.txt") == b"alpha\n" and "inbox/a.txt" not in state.files


def _are_rows_right(state: State) -> bool:
    users = state.tables("app.db")["users"]
    right = sorted(map(repr, _WANTED))
    return users.columns == ("id", "name", "active") and sorted(map(repr, users.rows)) == right


def _naive_grader(rollout: Rollout) -> Any:
    """A grader as users write them: it reads a number from a file."""
    assert rollout.end_state is not None
    return completed(Reward(float(rollout.end_state.files["reward.txt"]), "read"))


def _result(entry: Entry, name: str, grader: Grader, workspaces: LocalWorkspaces) -> Result:
    files = dict(entry.files)
    if entry.task == "suite":
        begun = {"shop/__init__.py": b"", "shop/pricing.py": _text("buggy.py").encode()}
        if any(path.startswith("shop/pricing/") for path in files):
            del begun["shop/pricing.py"]
        files = begun | files
    item = TaskItem(entry.task, entry.name, entry.name, (), _SUM)
    rollout = Rollout(item, 0, (), Reward(None, ""), length_limit=1, end_state=_end_state(files, workspaces))
    try:
        reward = graded(grader, rollout).result()
    except InputError as error:
        ends_run = 0.0 if entry.task == "own-reward" else math.inf  # no policy may end a run, but the user's own reward
        return Result(entry, name, ends_run, f"stops the run: {error}")
    told = reward.verdict and (reward.verdict.message or str(reward.verdict.fault or ""))
    return Result(entry, name, reward.value, f"{reward.reason}: {told}" if told else reward.reason)


def _end_state(files: dict[str, bytes], workspaces: LocalWorkspaces) -> EndState:
    """Return what an episode leaves: the files, after its script has run in a workspace if it has one."""
    script = files.pop("$", None)
    if script is None:
        return EndState(files)
    with closing(workspaces.start(files).result()) as workspace:
        workspace.call("shell", {"command": script.decode()}).result()
        return workspace.end(Declared()).result()


def measured(results: Sequence[Result]) -> dict[str, int]:
    """Return how many gradings there were, how many forgeries had a reward, and how many honest episodes had none."""
    forged = [result for result in results if not result.entry.is_honest]
    return {
        "forgeries": len(forged),
        "honest_episodes": len(results) - len(forged),
        "forged_rewards": sum(result.value != 0 for result in forged),
        "honest_refused": sum(result.value != 1 for result in results if result.entry.is_honest),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gauntlet.episode_course", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="entries with TEXT in family/name")
    options = parser.parse_args()
    results: list[Result] = []
    with EpisodeCourse() as course:
        for entry in read_episodes():
            for result in course.run(entry) if options.only in f"{entry.family}/{entry.name}" else ():
                results.append(result)
                mark, name = "ok  " if result.is_well else "FAIL", f"{entry.family}/{entry.name}"
                print(f"  {mark} {name:<48} {result.grader:<10} {result.value}  {result.message}"[:160], flush=True)
    print("\n  " + ", ".join(f"{name}: {number}" for name, number in measured(results).items()))
    return int(not all(result.is_well for result in results))


if __name__ == "__main__":
    sys.exit(main())
