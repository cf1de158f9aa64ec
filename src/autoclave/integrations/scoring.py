"""Rewards for responses of a model, from any judge. Independent of every framework."""

from __future__ import annotations

import atexit
import functools
import json
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, cast

from autoclave.compose.host import build_judge
from autoclave.config import load, parse_override
from autoclave.config.task import JudgeRunConfig
from autoclave.core import (
    CallCase,
    CallTests,
    Closing,
    DataError,
    InputError,
    JudgeFault,
    Problem,
    Program,
    Status,
    StdinCase,
    StdinTests,
    Verdict,
)
from autoclave.core.json import parse_object
from autoclave.core.problem import AnswerTests, StoredTests
from autoclave.judge import ANSWER_RULES, EXTRACTION_RULES, Judge, JudgeJob

RewardRule = Literal["binary", "fraction"]
GivenProblem = Problem | Mapping[str, Any] | str
"""A problem, a line of a problem file as object or string, a digest, or `{"inputs", "outputs", "fn_name"}`."""
_DIGEST = re.compile("[0-9a-f]{64}")


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

    def submit(self, response: str, problem: GivenProblem, id: str = "") -> Future[Verdict]:
        """Return the future of the verdict on a response; one without a program has it at once.

        Raises:
            InputError: the problem cannot be judged.
        """
        known = problem_of(problem)
        source = self.program_in(response, known)
        if source is None:
            done: Future[Verdict] = Future()
            done.set_result(Verdict.of(Status.BAD_FORMAT, problem_id=known.id, id=id, level=self._judge.level))
            return done
        stops = self._reward == "binary" and self._config.stop_at_failure
        return self._judge.submit(
            JudgeJob(known, Program(source, known.language), id, tests=self._config.tests, stop_at_failure=stops)
        )

    def program_in(self, response: str, problem: Problem) -> str | None:
        """Return the part of a response that is judged; None if there is none."""
        if isinstance(problem.tests, AnswerTests):
            return ANSWER_RULES[self._config.answer](response)
        return EXTRACTION_RULES[self._config.extraction](response)

    def verdicts(self, responses: Sequence[str], problems: Sequence[GivenProblem]) -> list[Verdict]:
        """Return the verdicts on responses to problems, pair by pair; after a fault, one has `fault` set.

        Raises:
            InputError: a problem cannot be judged, or the numbers of problems and responses differ.
        """
        if len(responses) != len(problems):
            raise InputError(
                f"{len(responses)} responses and {len(problems)} problems. Fix: give one problem per response"
            )
        pairs = zip(responses, problems, strict=True)
        futures = [self.submit(response, problem, str(number)) for number, (response, problem) in enumerate(pairs)]
        return [future.result() for future in futures]

    def value(self, verdict: Verdict) -> float:
        """Return the reward of a verdict.

        Raises:
            JudgeFault: the judge failed, so that there is no verdict.
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
            InputError: a problem cannot be judged, or the numbers of problems and responses differ.
            JudgeFault: the judge failed on one of them.
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
        InputError: a problem or a setting cannot be used.
        JudgeFault: the judge failed on one of them.
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


def problem_of(given: GivenProblem) -> Problem:
    """Return a problem from any of its forms.

    Raises:
        InputError: it has another form.
    """
    if isinstance(given, Problem):
        return given
    return _of_text(given.strip()) if isinstance(given, str) else _of_object(given)


@functools.lru_cache(1024)
def _of_text(text: str) -> Problem:
    """Return the problem, the same object for the same string: judges cache results per object."""
    if _DIGEST.fullmatch(text):
        return Problem("", StoredTests("stored", text), id=text[:16])
    return _of_object(parse_object(text, "problem"))


def _of_object(given: Mapping[str, Any]) -> Problem:
    if "inputs" in given and "outputs" in given and "format" not in given:
        return _of_pairs(given)
    return Problem.from_json(dict(given), "problem")


def _of_pairs(given: Mapping[str, Any]) -> Problem:
    """Return the problem of a data set for verl; arguments are JSON, one per line."""
    if unknown := sorted(set(given) - {"inputs", "outputs", "fn_name"}):
        raise DataError(f"problem: {unknown[0]}: must be inputs, outputs and fn_name, or a line of a problem file")
    inputs, outputs, name = given["inputs"], given["outputs"], given.get("fn_name")
    if not inputs or len(inputs) != len(outputs):
        raise DataError(
            f"problem: {len(inputs)} inputs and {len(outputs)} outputs: must be the same number, at least 1"
        )
    pairs = list(zip(inputs, outputs, strict=True))
    if not all(isinstance(one, str) for pair in pairs for one in pair):
        raise DataError("problem: inputs and outputs must be strings; arguments are JSON, one per line")
    if name is None:
        return _named(Problem("", StdinTests("stdin", [StdinCase(*pair) for pair in pairs])))
    try:
        cases = [CallCase([json.loads(line) for line in one.split("\n")], json.loads(out)) for one, out in pairs]
    except ValueError:
        raise DataError("problem: inputs and outputs of a function must be JSON, one argument per line") from None
    return _named(Problem("", CallTests("call", str(name), cases)))


def _named(problem: Problem) -> Problem:
    return Problem.from_json(problem.to_json() | {"id": problem.digest[:16]})
