"""Run entries through a judge, one after the other, with a look at the host and an honest program after each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import autoclave
from autoclave.config.sandbox import JudgeConfig, Level, SandboxConfig
from autoclave.core import InputError, Problem, Program, Verdict
from autoclave.judge import Judge, JudgeJob, LocalJudge
from gauntlet.canaries import Canaries
from gauntlet.entries import Attempt, Entry, Tasks, fresh_tasks
from gauntlet.host import Host

_PATIENCE_S = 60.0
"""A verdict that takes longer than this hangs: no task has limits that add up to it."""
_JUDGE_GROWTH_MB = 256
"""Most memory that judging one program may cost the judging process, at the default cap of 16 MiB of output."""
_CONTROL = "print(sum(map(int, input().split())))  # after "
_CONTROL_TASK = "sum"
_KILLED = "__import__('os').kill(__import__('os').getpid(), 9)  # "


@dataclass(slots=True)
class Result:
    """What became of one entry."""

    family: str
    name: str
    statuses: list[str] = field(default_factory=list[str])
    """Of each program: a verdict's status, `fault`, `hang`, or `error` when the judge raised."""
    skipped: str = ""
    """Why it did not run."""
    known: str = ""
    """Where it is documented that this one works."""
    undeserved: bool = False
    """A program was rewarded that should not have been."""
    refused: bool = False
    """An honest control was not accepted."""
    no_verdict: bool = False
    """A fault or a hang where a verdict is due."""
    unexpected: bool = False
    """A status, not a rewarding one, that the entry does not list."""
    damage: list[str] = field(default_factory=list[str])
    """Seen on the host afterwards."""
    messages: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def is_well(self, level: str) -> bool:
        """Whether the defence held. Below `sealed` damage is expected, and so are other ways to fail."""
        if self.known:
            return True
        held = not (self.undeserved or self.refused or self.no_verdict)
        return held and (level != "sealed" or not (self.damage or self.unexpected))

    def to_json(self, level: str) -> dict[str, Any]:
        return asdict(self) | {"ok": self.is_well(level)}


class Course:
    """A judge, canaries, and the host under watch. Use in a `with` statement."""

    def __init__(self, sandbox: SandboxConfig, *, workers: int = 1) -> None:
        """Open the judge.

        Raises:
            IsolationError: the host does not offer what `sandbox` asks for.
        """
        self._tasks: Tasks = fresh_tasks()
        self._judge: Judge = LocalJudge(sandbox, JudgeConfig(workers=workers, time_limit_range=(0.1, 10.0)))
        self.level: Level = self._judge.level
        self._canaries = Canaries(self._tasks.token)
        package = Path(autoclave.__file__).parent
        self._host = Host(self._canaries.mark, self._canaries.open_port, package, _JUDGE_GROWTH_MB)
        self._workers = workers
        self._num_controls = 0

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        self._judge.close()
        self._canaries.__exit__(None, None, None)

    def run(self, entries: Iterable[Entry]) -> Iterator[Result]:
        """The results in order, each as soon as it is there."""
        self._warm_up()
        for entry in entries:
            yield self._run_entry(entry)

    def _run_entry(self, entry: Entry) -> Result:
        result = Result(entry.family, entry.name, known=entry.known)
        if entry.harms and self.level != "sealed":
            result.skipped = f"only in sealed cells: {entry.harms}"
            return result
        before = self._host.look()
        started = time.monotonic()
        try:
            for attempt in entry.attempts:
                self._note(result, entry, attempt, self._verdict_of(attempt))
        except InputError as error:
            result.skipped = f"not offered: {error}"
            return result
        except (FutureTimeoutError, TimeoutError):
            result.statuses.append("hang")
            result.no_verdict = True
        except Exception as error:  # noqa: BLE001  whatever the judge raises, it is no verdict
            result.statuses.append("error")
            result.messages.append(f"the judge raised {type(error).__name__}: {error}")
            result.no_verdict = True
        result.seconds = round(time.monotonic() - started, 2)
        if not self._is_control_accepted():
            result.damage.append("the judge refuses an honest program afterwards")
        result.damage += self._host.damage_since(before) + self._canaries.touches()
        return result

    def _note(self, result: Result, entry: Entry, attempt: Attempt, verdict: Verdict) -> None:
        status = "fault" if verdict.status is None else verdict.status.value
        result.statuses.append(status)
        result.messages.append(verdict.fault.detail if verdict.fault else verdict.message)
        result.no_verdict |= verdict.fault is not None
        if status in attempt.verdicts or verdict.fault:
            return
        result.undeserved |= verdict.is_accepted
        result.refused |= entry.is_honest
        result.unexpected |= not verdict.is_accepted and not entry.is_honest

    def _verdict_of(self, attempt: Attempt) -> Verdict:
        problem = self._tasks.problems[attempt.task]
        program = Program(attempt.source(self._canaries.literals), problem.language)
        return self._judge.submit(JudgeJob(problem, program, attempt.task)).result(timeout=_PATIENCE_S)

    def _is_control_accepted(self) -> bool:
        self._num_controls += 1  # or the judge would remember
        return self._accepts(self._tasks.problems[_CONTROL_TASK], f"{_CONTROL}{self._num_controls}")

    def _accepts(self, problem: Problem, source: str) -> bool:
        future = self._judge.submit(JudgeJob(problem, Program(source), "control"))
        try:
            return future.result(timeout=_PATIENCE_S).is_accepted
        except Exception:  # noqa: BLE001
            return False

    def _warm_up(self) -> None:
        """Have the judge start all processes that it keeps, so that later ones are left by programs.

        A run that is killed is repeated in a second cell while the first one is open: that takes the most processes.
        """
        kinds = {(p.profile, p.tests.kind, p.language): p for p in self._tasks.problems.values()}
        for problem in kinds.values():
            try:
                killed = [
                    self._judge.submit(JudgeJob(problem, Program(f"{_KILLED}{copy}", problem.language)))
                    for copy in range(4 * self._workers)
                ]
            except InputError:
                continue
            for future in killed:
                future.result()
        self._host.expect_no_more_processes()


def totals(results: Iterable[Result], level: str) -> Mapping[str, Mapping[str, int]]:
    """Per family: entries, those that ran, those where the defence held, and the ways in which it did not."""
    table: dict[str, dict[str, int]] = {}
    for result in results:
        row = table.setdefault(
            result.family,
            dict.fromkeys(("entries", "ran", "ok", "rewarded", "damage", "refused", "no verdict", "known"), 0),
        )
        row["entries"] += 1
        row["ran"] += not result.skipped
        row["ok"] += not result.skipped and result.is_well(level)
        row["known"] += bool(result.known and result.undeserved)
        row["rewarded"] += result.undeserved and not result.known
        row["damage"] += bool(result.damage)
        row["refused"] += result.refused
        row["no verdict"] += result.no_verdict
    return table
