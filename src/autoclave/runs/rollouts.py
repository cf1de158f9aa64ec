"""Rollouts as training recorded them, one by one.

What a record lacks or has of another type is None, so that files of earlier versions and of killed runs still show.
Nothing is escaped here; templates do that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np

from autoclave.core.alignment_sample import AlignmentSample
from autoclave.core.errors import DataError
from autoclave.core.files import read_jsonl
from autoclave.core.json import from_plain, shown
from autoclave.core.verdict import Verdict
from autoclave.environments.tools import ToolCall, split_calls
from autoclave.runs.reader import number
from autoclave.tasks.execution_semantics import EXACT

ROLLOUT_FORMAT = "autoclave-rollout/1"
LOG_PROB_DECIMALS = 5
"""Of log-probs in rollout files: float32 sums of a forward pass agree to about as many."""

_NUMBERS = (float, int, type(None))

NO_TASK = "no_task_recorded"
"""In place of a task in files of versions that did not record it."""

SHOWN_TESTS = 40
"""Most tests shown of a verdict."""


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """The T tokens of a response: ids and (T,) float64 natural log-probs, NaN where one was not finite.

    `trainer` is NaN throughout if the trainer did not compute the rollout. `is_processed` if the sampler's log-probs
    are of its distribution after top-p, which the trainer does not know.
    """

    ids: Sequence[int]
    sampler: np.ndarray
    trainer: np.ndarray
    is_processed: bool

    @property
    def mismatches(self) -> np.ndarray:
        """(T,) trainer minus sampler, nats; NaN where one is missing."""
        return np.round(self.trainer - self.sampler, LOG_PROB_DECIMALS)


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One turn: what the policy read before it, its text without calls of tools, and these."""

    observed: str
    text: str
    calls: Sequence[ToolCall]


@dataclass(frozen=True)
class RecordedRollout:
    """One line of a rollout file."""

    record: Mapping[str, Any]
    where: str = "rollout"
    """File and line."""

    @cached_property
    def verdict(self) -> Verdict | None:
        """Raises DataError: what is recorded is no verdict."""
        verdict = self.record.get("verdict")
        return None if verdict is None else from_plain(Verdict, verdict, f"{self.where}: verdict")

    @cached_property
    def alignment_sample(self) -> AlignmentSample | None:
        """The alignment sample that it answers, if it does.

        Raises DataError: what is recorded is no alignment sample.
        """
        sample = self.record.get("alignment_sample")
        return None if sample is None else from_plain(AlignmentSample, sample, f"{self.where}: alignment sample")

    @property
    def task(self) -> str:
        return self._word("task") or NO_TASK

    @property
    def item(self) -> str:
        return str(self.record.get("item", ""))

    @property
    def group(self) -> str:
        return str(self.record.get("group"))

    @property
    def prompt(self) -> str:
        return str(self.record.get("prompt", ""))

    @property
    def response(self) -> str:
        return str(self.record.get("response", ""))

    @property
    def turns(self) -> list[RecordedTurn]:
        found: Any = self.record.get("turns")
        turns = found if _is_list_of(found, dict) else [{"response": self.response}]
        return [RecordedTurn(str(t.get("observed", "")), *split_calls(str(t.get("response", "")))) for t in turns]

    @property
    def end_state(self) -> Mapping[str, Any] | None:
        """Sizes of `files`, reasons of paths `left_out`, and `changes`; None if it left none."""
        found = self.record.get("end_state")
        return {"files": {}, "left_out": {}, "changes": "", **found} if isinstance(found, dict) else None

    @property
    def sample(self) -> int | None:
        return self._count("sample")

    @property
    def tokens(self) -> int | None:
        return self._count("tokens")

    @property
    def reward(self) -> float | None:
        return number(self.record, "reward")

    @property
    def reward_parts(self) -> Mapping[str, Any]:
        parts = self.record.get("reward_parts")
        return cast("Mapping[str, Any]", parts) if isinstance(parts, dict) else {}

    @property
    def is_accepted(self) -> bool:
        """By the judge; of an answer that no judge looks at, whether it is exact."""
        verdict = self.record.get("verdict")
        return self.reason == EXACT if verdict is None else verdict.get("status") == "accepted"

    @property
    def reason(self) -> str | None:
        """Of a reward that came without a verdict; None with one, and where there is no reward."""
        if self.record.get("verdict") is not None or self.reward is None:
            return None
        return self._word("reason") or "failed"

    @property
    def outcome(self) -> str:
        """`accepted`, `failed` or `none` (no verdict)."""
        if self.is_accepted:
            return "accepted"
        return "none" if self.reward is None else "failed"

    @property
    def status(self) -> str:
        """The status of the verdict; without one the reason of the reward, or that there is neither."""
        if self.verdict and self.verdict.status:
            return self.verdict.status.value
        if self.outcome == "none":
            return "no_verdict"
        return self.reason or self._word("reason") or "failed"

    @property
    def message(self) -> str:
        fault = self.verdict.fault if self.verdict else None
        return f"{fault.kind}: {fault.detail}" if fault else self.verdict.message if self.verdict else ""

    @property
    def mask_reason(self) -> str | None:
        return self._word("mask_reason")

    @property
    def finish_reason(self) -> str | None:
        return self._word("finish_reason")

    @property
    def ledger(self) -> Mapping[str, Any]:
        ledger = self.record.get("ledger")
        return cast("Mapping[str, Any]", ledger) if isinstance(ledger, dict) else {}

    @property
    def advantage(self) -> float | None:
        """Mean over its tokens; None if it does not train."""
        return number(self.ledger, "advantage")

    @property
    def policy_versions(self) -> list[tuple[int, int, int]]:
        """`(version, start, stop)` token ranges."""
        found: Any = self.record.get("policy_versions")
        ranges: list[Any] = cast("list[Any]", found) if isinstance(found, list) else []
        return [(part[0], part[1], part[2]) for part in ranges if _is_list_of(part, int) and len(part) == 3]

    @property
    def token_columns(self) -> TokenColumns | None:
        """None if tokens were not recorded."""
        ids, sampler = self.record.get("token_ids"), self.record.get("sampler_log_probs")
        if not _is_list_of(ids, int) or not _is_list_of(sampler, *_NUMBERS) or len(ids) != len(sampler):
            return None
        trainer = self.record.get("trainer_log_probs")
        if not _is_list_of(trainer, *_NUMBERS) or len(trainer) != len(ids):
            trainer = [None] * len(ids)
        is_processed = self.record.get("log_prob_kind") == "processed"
        return TokenColumns(ids, np.array(sampler, np.float64), np.array(trainer, np.float64), is_processed)

    def _count(self, key: str) -> int | None:
        value = number(self.record, key)
        return None if value is None else int(value)

    def _word(self, key: str) -> str | None:
        value = self.record.get(key)
        return None if value is None else str(value)


def read_rollouts(path: Path) -> Iterator[RecordedRollout]:
    """The rollouts of one file, in order, one in memory at a time.

    Raises InputError: there is no such file. DataError: a line is damaged, or of another format.
    """
    for where, record in read_jsonl(path, "rollouts"):
        if record.get("format", ROLLOUT_FORMAT) != ROLLOUT_FORMAT:
            raise DataError(f'{where}: format = {shown(record["format"])}: must be "{ROLLOUT_FORMAT}"')
        yield RecordedRollout(record, where)


def step_of(path: Path) -> int:
    """The step whose rollouts stand in the file at `path`."""
    return int(path.name.split("-")[1].split(".")[0])


def varied(outlines: Mapping[str, Sequence[bool]]) -> list[str]:
    """The names of groups, ordered for variety, by which of their rollouts were accepted.

    In turns two that are partly accepted, one that failed as a whole, and one that was accepted as a whole; each kind
    in the order of `outlines`.
    """
    mixed = [name for name, accepted in outlines.items() if any(accepted) and not all(accepted)]
    failed = [name for name, accepted in outlines.items() if not any(accepted)]
    accepted = [name for name, accepted in outlines.items() if all(accepted)]
    turns = zip_longest(mixed[0::2], mixed[1::2], failed, accepted)
    return [name for turn in turns for name in turn if name is not None]


def _is_list_of(value: Any, *types: type) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(type(part) in types for part in cast("list[Any]", value))
