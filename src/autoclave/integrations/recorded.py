"""Recorded rollouts with their scores: of our runs, of verl (`trainer.rollout_data_dir`), of TRL (`log_completions`),
and rows of prompt, response, score and problem. Files may still grow.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autoclave.core import DataError, InputError, Status
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers.layouts import CONTEXT
from autoclave.problems.readers.raw_files import RawFiles
from autoclave.problems.readers.row import RawRow
from autoclave.runs.rollouts import NO_TASK, RecordedRollout

_JUDGED_TASKS = ("code_generation", "mathematics", NO_TASK)
_NO_SCORES = {"step", "advantage"}


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A response and the score that was recorded for it.

    Attributes:
        where: file and row.
        group: rollouts of one group share a baseline.
        status: of the recorded verdict; empty where there is none.
        problem: as `problem_of` takes it, in JSON if it is an object; empty if the row does not have it.
        context: of `problem_of`, in JSON.
    """

    where: str
    id: str
    group: str
    prompt: str
    response: str
    score: float
    status: str
    problem_id: str
    problem: str
    context: str = "{}"


LeftOut = tuple[str, str]
"""Place of a row, or a file, that cannot be compared, and the reason."""


def read_scored(files: RawFiles, *, score: str = "", takes_share: bool = False) -> Iterator[ScoredRollout | LeftOut]:
    """Yield the rollouts of files in order; a line or file that is not complete is left out.

    Args:
        score: column of the score; by default `score`, `reward`, or the only column of numbers.
        takes_share: the score of records of our runs is the share of tests that passed, and not 1 or 0.

    Raises:
        DataError: the column of the score is not clear.
    """
    for name in files.files:
        try:
            for row in RawFiles(files.root, [name]).rows():
                if isinstance(row, SkippedRow):
                    yield row.row, f"{row.reason}: {row.detail}"
                elif "item" in row.fields and "verdict" in row.fields:
                    yield _of_run(RecordedRollout(row.fields, row.place), name, takes_share)
                else:
                    yield _of_row(row, score)
        except InputError as error:
            if isinstance(error, DataError):
                raise
            yield name, f"not complete: {error}"


def _of_run(rollout: RecordedRollout, file: str, takes_share: bool) -> ScoredRollout | LeftOut:
    if rollout.task not in _JUDGED_TASKS:
        return rollout.where, f"of task {rollout.task}, which no judge scores"
    verdict = rollout.verdict
    if verdict is None or verdict.status is None:
        return rollout.where, "no recorded verdict"
    id, group = f"{rollout.item}#{rollout.sample}", f"{file}:{rollout.group}"
    score = verdict.passed_share if takes_share else float(verdict.is_accepted)
    prompt, response = rollout.prompt, rollout.response
    return ScoredRollout(rollout.where, id, group, prompt, response, score, verdict.status, rollout.item, "")


def _of_row(row: RawRow, column: str) -> ScoredRollout | LeftOut:
    def first(*names: str) -> Any:
        return next((row.fields[name] for name in names if row.has(name)), None)

    prompt, response = _text(first("prompt", "input")), first("response", "output", "completion")
    score = row.fields.get(column or _score_column(row))
    if response is None or not isinstance(score, int | float) or not math.isfinite(score):
        return row.place, "no response (response, output, completion) or no score"
    problem = first("problem", "gts", "ground_truth") or ""
    given = problem if isinstance(problem, str) else json.dumps(problem)
    digest = hashlib.sha256((prompt or given).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    id, group = row.text_or("", "id", "request_id"), f"{row.text_or('', 'step')}:{digest}"
    status, problem_id = row.text_or("", "status"), row.text_or("", "problem_id")
    status = status if status in set(Status) else ""
    beside = json.dumps({name: row.fields[name] for name in CONTEXT if row.has(name)})
    return ScoredRollout(row.place, id, group, prompt, _text(response), float(score), status, problem_id, given, beside)


def _text(value: Any) -> str:
    """Return a text; of messages, their contents."""
    if isinstance(value, list):
        return "\n".join(str(message["content"]) for message in cast("Sequence[Mapping[str, Any]]", value))
    return str(value or "")


def _score_column(row: RawRow) -> str:
    numbers = [name for name, value in row.fields.items() if isinstance(value, int | float) and name not in _NO_SCORES]
    found = [name for name in ("score", "reward") if row.has(name)][:1] or numbers
    if len(found) != 1:
        raise DataError(f"{row.place}: score: may be any of {', '.join(found or row.fields)}. Fix: give --score COLUMN")
    return found[0]
