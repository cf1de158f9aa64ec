"""Rewards for responses of a model, from any judge. Independent of every framework."""

import atexit
import functools
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import zip_longest
from typing import Any, Literal, cast

from autoclave.compose.host import build_judge
from autoclave.config import load, parse_override
from autoclave.config.task import JudgeRunConfig
from autoclave.core import Closing, Problem, Program
from autoclave.core.errors import DataError, HostError, InputError, JudgeFault
from autoclave.core.futures import completed
from autoclave.core.problem import AnswerTests
from autoclave.core.verdict import Fault, Status, Verdict
from autoclave.judge import ANSWER_RULES, EXTRACTION_RULES, Judge, JudgeJob
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers.layouts import CONTEXT, read_candidate, tests_alone
from autoclave.problems.readers.row import RawRow

RewardRule = Literal["binary", "fraction"]
GivenProblem = Problem | Mapping[str, Any] | Sequence[Any] | str
"""A problem, a line of a problem file, a digest, or tests as in public sets, as objects or as a string."""
_log = logging.getLogger(__name__)


class Scorer(Closing):
    """Scores responses with one judge. Safe to use from several threads; close it, or use it with `with`."""

    def __init__(
        self, settings: Sequence[str] = (), *, judge: Judge | None = None, reward: RewardRule = "binary"
    ) -> None:
        """Open the judge that settings name, or use the one that is given, which stays the caller's to close.

        Args:
            settings: as on the command line of `autoclave judge`, such as `judge.backend=remote`.
            judge: in place of the judge of the settings.
            reward: `binary` is 1 if all tests pass, else 0; `fraction` the share of tests that pass.

        Raises:
            ConfigError: a setting cannot be used.
            IsolationError: this host does not offer the isolation level of the settings.
            HostError: no judge server responds.
        """
        if reward not in ("binary", "fraction"):
            raise InputError(f"reward = {reward!r}: must be binary or fraction")
        self._config = load(JudgeRunConfig, None, [parse_override(text) for text in settings]).config
        self._reward = reward
        self._own = build_judge(self._config.judge, self._config.sandbox) if judge is None else None
        self._judge = judge or cast("Judge", self._own)
        self._reported: set[int] = set()

    def submit(
        self, response: str, problem: GivenProblem, id: str = "", context: Mapping[str, Any] | None = None
    ) -> Future[Verdict]:
        """Return the future of the verdict on a response; one without a program has it at once.

        A problem that cannot be judged gives a verdict with a fault of kind `problem`, and is reported once in the log.

        Args:
            id: names the row in the report.
            context: as of `problem_of`.
        """
        following: Future[Verdict] = Future()

        def finish(done: Future[Verdict]) -> None:
            if not following.set_running_or_notify_cancel():
                return
            try:
                following.set_result(done.result())
            except (InputError, HostError) as error:
                following.set_result(self._unjudged(problem, id, error))
            except BaseException as error:  # noqa: BLE001  it is raised where the result is waited for
                following.set_exception(error)

        try:
            judged = self._submit(response, problem_of(problem, context), id)
            following.add_done_callback(lambda own: own.cancelled() and judged.cancel())
            judged.add_done_callback(finish)
        except (InputError, HostError) as error:
            return completed(self._unjudged(problem, id, error))
        return following

    def _submit(self, response: str, known: Problem, id: str) -> Future[Verdict]:
        source = self.program_in(response, known)
        if source is None:
            return completed(Verdict.of(Status.BAD_FORMAT, problem_id=known.id, id=id, level=self._judge.level))
        stops = self._reward == "binary" and self._config.stop_at_failure
        return self._judge.submit(
            JudgeJob(known, Program(source, known.language), id, tests=self._config.tests, stop_at_failure=stops)
        )

    def _unjudged(self, given: GivenProblem, id: str, error: Exception) -> Verdict:
        key = hash(given if isinstance(given, str) else repr(given))
        if key not in self._reported:  # once per row, not per response and epoch
            self._reported.add(key)
            _log.error("row %s cannot be judged, and has no verdict: %s", id or "?", error)
        return Verdict.none(Fault("problem", str(error)), id=id)

    def program_in(self, response: str, problem: Problem) -> str | None:
        """Return the part of a response that is judged; None if there is none."""
        if isinstance(problem.tests, AnswerTests):
            return ANSWER_RULES[self._config.answer](response)
        return EXTRACTION_RULES[self._config.extraction](response)

    def verdicts(
        self,
        responses: Sequence[str],
        problems: Sequence[GivenProblem],
        ids: Sequence[str] = (),
        contexts: Sequence[Mapping[str, Any]] = (),
    ) -> list[Verdict]:
        """Return the verdicts on responses to problems, pair by pair; one without a status has `fault` set.

        Args:
            ids: names of the rows in reports; their indices by default.
            contexts: as of `submit`, if given one per problem.

        Raises:
            InputError: the numbers of problems and responses differ.
        """
        if len(responses) != len(problems):
            raise InputError(
                f"{len(responses)} responses and {len(problems)} problems. Fix: give one problem per response"
            )
        rows = zip_longest(responses, problems, ids or map(str, range(len(problems))), contexts)
        return [future.result() for future in [self.submit(*row) for row in rows]]

    def value(self, verdict: Verdict) -> float:
        """Return the reward of a verdict.

        Raises:
            JudgeFault: there is no verdict.
        """
        if verdict.fault is not None or verdict.status is None:
            fault = verdict.fault
            raise JudgeFault(f"no verdict: {fault.kind}: {fault.detail}" if fault else "no verdict")
        if self._reward == "binary":
            return float(verdict.is_accepted)
        return verdict.passed_share

    def score(self, responses: Sequence[str], problems: Sequence[GivenProblem]) -> list[float]:
        """Return the rewards of responses to problems, pair by pair.

        Raises:
            InputError: the numbers of problems and responses differ.
            JudgeFault: one of them has no verdict.
        """
        return [self.value(verdict) for verdict in self.verdicts(responses, problems)]

    def close(self) -> None:
        """Close the judge, if it was opened here."""
        if self._own is not None:
            self._own.close()


def score(
    responses: Sequence[str],
    problems: Sequence[GivenProblem],
    *,
    settings: Sequence[str] = (),
    reward: RewardRule = "binary",
) -> list[float]:
    """Return the rewards of responses to problems, pair by pair, with a judge opened for this call.

    Raises:
        InputError: a setting cannot be used, or the numbers of problems and responses differ.
        JudgeFault: one of them has no verdict.
    """
    with Scorer(settings, reward=reward) as scorer:
        return scorer.score(responses, problems)


_opening = threading.Lock()


def scorer_of_process(settings: tuple[str, ...], reward: RewardRule) -> Scorer:
    """Return the scorer of this process for these settings, for frameworks that take a function; closed at exit."""
    with _opening:  # a cache alone would open one per concurrent thread
        return _kept_scorer(settings, reward)


@functools.cache
def _kept_scorer(settings: tuple[str, ...], reward: RewardRule) -> Scorer:
    scorer = Scorer(settings, reward=reward)
    atexit.register(scorer.close)
    return scorer


def problem_of(given: GivenProblem, context: Mapping[str, Any] | None = None) -> Problem:
    """Return a problem from any of its forms, read as curation reads them (`autoclave.problems.readers`).

    Args:
        context: other columns of the row, of which a function's name and the starter code are read.

    Raises:
        DataError: it has another form.
    """
    if isinstance(given, Problem):
        return given
    text = given if isinstance(given, str) else json.dumps(given, default=_plain)
    used = {name: value for name in CONTEXT if (value := (context or {}).get(name)) is not None}
    return _read(text.strip(), json.dumps(used, default=_plain))


@functools.lru_cache(1024)
def _read(text: str, context: str) -> Problem:
    """Return the problem, the same object for the same strings: judges cache results per object."""
    found = read_candidate(
        lambda row: tests_alone(text, json.loads(context), row.place), "any", "", RawRow("problem", {})
    )
    if isinstance(found, SkippedRow):
        raise DataError(f"problem: {found.reason}: {found.detail}")
    return found.problem


def _plain(value: Any) -> Any:
    """Return an array of a table as lists and numbers."""
    return value.tolist()
