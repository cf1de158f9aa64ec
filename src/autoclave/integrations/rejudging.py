"""Recorded rollouts judged again: what changes, why, and what the advantages would have been."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from autoclave.config import TrainConfig
from autoclave.core import Fault, InputError, Problem, Status, UsageError, Verdict, read_problems
from autoclave.core.futures import completed
from autoclave.integrations.recorded import LeftOut, ScoredRollout
from autoclave.integrations.scoring import RewardRule, Scorer, problem_of
from autoclave.judge.files import ProblemIndex
from autoclave.judge.streaming import in_order
from autoclave.problems import ProblemSets

_OTHER_RULES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "false_positive": ({"checker": "tokens"}, {"checker": "unordered"}, {"checker": "float"}, {"profile": "leetcode"}),
    "false_negative": ({"checker": "tokens"},),
}
"""By which changes of these causes are judged once more."""
_EXAMINED = 64
"""Changes examined together."""
_TOLERANCE = 1e-6
"""Of scores, and in the divisor of advantages."""

ProblemOf = Callable[[ScoredRollout], Problem]


@dataclass(slots=True)
class Rejudged:
    """Result of judging again.

    Attributes:
        causes: changes of the score, by cause.
        left_out: places of rows that were not compared, by reason.
        advantage_change: mean absolute change of GRPO's advantages.
        sign_changes: groups in which the sign of an advantage changes.
    """

    rollouts: int = 0
    unchanged: int = 0
    no_verdict: int = 0
    groups: int = 0
    advantage_change: float = 0.0
    sign_changes: int = 0
    causes: Counter[str] = field(default_factory=Counter[str])
    examples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left_out: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def rejudge_rows(
    rows: Iterable[ScoredRollout | LeftOut],
    problem_of_row: ProblemOf,
    scorer: Scorer,
    *,
    accepted_from: float | None = 1.0,
    examples: int = 3,
    pending_limit: int = 64,
) -> Rejudged:
    """Judge rollouts again and compare the scores.

    Args:
        accepted_from: recorded scores from here on mean accepted, and 1 or 0 is compared; None: compare the scores.
        examples: most changes kept of each cause.

    Raises:
        InputError: a row is damaged.
    """
    found, rewards = Rejudged(), dict[str, list[tuple[float, float]]]()
    changed: list[tuple[ScoredRollout, Verdict]] = []

    def submitted() -> Iterator[tuple[ScoredRollout, Future[Verdict]]]:
        for row in rows:
            if not isinstance(row, ScoredRollout):
                found.left_out.setdefault(row[1], []).append(row[0])
                continue
            try:
                yield row, scorer.submit(row.response, problem_of_row(row), row.id)
            except InputError as error:
                yield row, completed(Verdict.none(Fault("problem", str(error))))

    def examine() -> None:
        for change in _examined(changed, problem_of_row, scorer, pending_limit):
            found.causes[change["cause"]] += 1
            if found.causes[change["cause"]] <= examples:
                found.examples.append(change)
        changed.clear()

    for row, verdict in in_order(submitted(), pending_limit):
        found.rollouts += 1
        if verdict.fault:
            found.no_verdict += 1
            found.left_out.setdefault(f"{verdict.fault.kind}: {verdict.fault.detail}", []).append(row.where)
            continue
        recorded, now = row.score if accepted_from is None else row.score >= accepted_from, scorer.value(verdict)
        rewards.setdefault(row.group, []).append((float(recorded), now))
        if abs(recorded - now) > _TOLERANCE:
            changed.append((replace(row, score=float(recorded)), verdict))
        else:
            found.unchanged += 1
        if len(changed) == _EXAMINED:
            examine()
    examine()
    found.groups = len(rewards)
    found.advantage_change, found.sign_changes = advantage_changes(rewards.values())
    return found


def _examined(
    changed: Sequence[tuple[ScoredRollout, Verdict]], problem_of_row: ProblemOf, scorer: Scorer, pending_limit: int
) -> Iterator[dict[str, Any]]:
    """Yield each change with its cause, after judging by other rules where scores and statuses do not tell."""

    def submitted() -> Iterator[tuple[tuple[int, str], Future[Verdict]]]:
        for index, (row, verdict) in enumerate(changed):
            problem = problem_of_row(row)
            for rule in () if problem.tests.kind == "stored" else _OTHER_RULES.get(cause_of(row, verdict), ()):
                yield (index, " ".join(*rule.items())), scorer.submit(row.response, replace(problem, **rule))

    by_rule: dict[int, str] = {}
    for (index, rule), other in in_order(submitted(), pending_limit):
        if not other.fault and other.is_accepted is not changed[index][1].is_accepted:
            by_rule.setdefault(index, rule)
    for index, (row, verdict) in enumerate(changed):
        cause, detail = cause_of(row, verdict), verdict.message
        if index in by_rule:
            cause, did = ("looser_rule", "rejected") if verdict.is_accepted else ("stricter_rule", "accepted")
            detail = f"{did} with {by_rule[index]}"
        elif verdict.failing_test is not None:
            detail = f"test {verdict.failing_test}: {detail}"
        place = {"where": row.where, "id": row.id or verdict.problem_id, "response": row.response}
        scores = {"recorded": row.score, "now": scorer.value(verdict), "status": verdict.status}
        yield place | scores | {"cause": cause, "detail": detail}


def cause_of(row: ScoredRollout, verdict: Verdict) -> str:
    """Return why a score changed, as far as scores and statuses tell."""
    statuses = {row.status, verdict.status}
    if Status.TIME_LIMIT in statuses:
        return "time_limit"
    if Status.BAD_FORMAT in statuses:
        return "extraction"
    if verdict.is_accepted:
        return "false_negative"
    if statuses & {Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT}:
        return "limit"
    return "false_positive" if row.score >= 1 else "share"


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return the advantages of GRPO in one group: distances from the mean in standard deviations."""
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + _TOLERANCE) for reward in rewards]


def advantage_changes(groups: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, int]:
    """Return the mean absolute change of advantages, and in how many groups one changes its sign.

    Args:
        groups: of each group, the pairs of recorded and new reward.
    """
    changes: list[float] = []
    num_signs = 0
    for group in groups:
        pairs = list(zip(*(advantages(rewards) for rewards in zip(*group, strict=True)), strict=True))
        changes += [abs(one - other) for one, other in pairs]
        num_signs += any((one > 0, one < 0) != (other > 0, other < 0) for one, other in pairs)
    return fmean(changes or [0.0]), num_signs


def sampled_groups(rows: Iterable[ScoredRollout | LeftOut], count: int) -> set[str]:
    """Return groups, drawn at random until they have `count` rollouts."""
    sizes = Counter(row.group for row in rows if isinstance(row, ScoredRollout))
    chosen, total = set[str](), 0
    for group in random.Random(0).sample(sorted(sizes), len(sizes)):
        if total < count:
            chosen.add(group)
            total += sizes[group]
    return chosen


def run_settings(run: TrainConfig, given: Sequence[str]) -> tuple[list[str], RewardRule]:
    """Return the settings by which a run judged, with `given` on top, and its reward."""
    task = run.task.model_dump(mode="json")
    of_run = {name: task[name] for name in ("extraction", "answer", "tests") if name in task}
    if not any(setting.startswith("judge.backend=") for setting in given):  # another judge has its own settings
        of_run |= {"judge": run.judge.model_dump_json(), "sandbox": run.sandbox.model_dump_json()}
    return [*(f"{name}={value}" for name, value in of_run.items()), *given], task.get("reward", "binary")


def problem_finder(index: ProblemIndex | None, run: TrainConfig | None, checker: str | None) -> ProblemOf:
    """Return what finds the problem of a rollout: in a file by id or statement, else in the run, else in the row.

    Args:
        checker: in place of those of problems with cases.
    """
    of_run = {} if index or not run else {problem.id: problem for problem in ProblemSets(run).train}

    @lru_cache(64)
    def find(id: str, prompt: str, given: str, context: str) -> Problem:
        if index:
            known = {id: [id]} if id in index else _ids_by_statement(index.path)
            ids = known[id if id in index else max((text for text in known if text in prompt), key=len, default="")]
            if len(ids) != 1:
                raise UsageError(f"{index.path} has neither problem {id!r} nor one whose statement the prompt contains")
            problem = index[ids[0]]
        elif id in of_run:
            problem = of_run[id]
        elif given:
            problem = problem_of(given, json.loads(context))
        else:
            raise UsageError("the row has no problem, gts or ground_truth. Fix: give --problems FILE")
        if checker and problem.tests.kind == "stored":
            raise UsageError("--checker: the row has only the digest of its problem. Fix: give --problems FILE")
        return replace(problem, checker=checker) if checker and problem.tests.kind in ("stdin", "call") else problem

    return lambda row: find(row.problem_id, row.prompt, row.problem, row.context)


@cache
def _ids_by_statement(path: Path) -> Mapping[str, list[str]]:
    ids = defaultdict[str, list[str]](list)
    for problem in read_problems(path):
        if statement := problem.statement.strip():
            ids[statement].append(problem.id)
    return ids
