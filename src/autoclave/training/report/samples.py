"""Pick some groups of rollouts of one step to look at, in bounded memory.

A rollout file is read twice: once for an outline of its first groups, once for the text of the chosen ones. The choice
is for variety, not at random: where they exist, groups that are partly accepted come first, then one that failed
as a whole, then one that was accepted as a whole. Nothing is escaped here; the template does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from autoclave.core.errors import DataError
from autoclave.core.files import read_jsonl
from autoclave.core.json import from_plain
from autoclave.core.verdict import Verdict
from autoclave.training.report.text import count

SCANNED_ROLLOUTS = 2048
"""How far into a file groups are looked for."""
SHOWN_SIBLINGS = 16
"""Most rollouts shown of a group."""
SHOWN_CHARACTERS = 6000
"""Most characters shown of a prompt or a response."""
SHOWN_TESTS = 40
"""Most tests shown of a verdict."""


@dataclass(frozen=True, slots=True)
class SampledRollout:
    """One rollout as a reader wants to see it."""

    record: dict[str, Any]
    verdict: Verdict | None

    @property
    def outcome(self) -> str:
        """`accepted`, `failed` or `none` (no verdict): what the filter of the page goes by."""
        if self.verdict and self.verdict.is_accepted:
            return "accepted"
        return "none" if self.record.get("reward") is None else "failed"

    @property
    def status(self) -> str:
        """The status of the verdict, or in a word why there is none."""
        if self.verdict and self.verdict.status:
            return self.verdict.status.value
        return "no_verdict" if self.outcome == "none" else str(self.record.get("reason") or "failed")

    @property
    def message(self) -> str:
        fault = self.verdict.fault if self.verdict else None
        return f"{fault.kind}: {fault.detail}" if fault else self.verdict.message if self.verdict else ""

    @property
    def response(self) -> str:
        return shortened(str(self.record.get("response", "")))


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """Rollouts of one problem in one step, in order of their sample."""

    item: str
    prompt: str
    rollouts: tuple[SampledRollout, ...]
    num_accepted: int
    num_rollouts: int

    @property
    def open_rollouts(self) -> list[SampledRollout]:
        """The first that was accepted and the first that failed; the others unfold on a click."""
        outcomes = [rollout.outcome for rollout in self.rollouts]
        return [self.rollouts[outcomes.index(outcome)] for outcome in ("accepted", "failed") if outcome in outcomes]


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The groups chosen from one rollout file."""

    step: int
    groups: tuple[SampledGroup, ...]


def sample_step(path: Path, num_groups: int) -> SampledStep:
    """At most `num_groups` groups of the rollout file at `path`. A file that was cut gives what is readable of it."""
    outlines: dict[str, list[bool]] = {}
    for record in _records(path):
        outlines.setdefault(str(record.get("group")), []).append(_is_accepted(record))
    chosen: dict[str, list[dict[str, Any]]] = {name: [] for name in _varied(outlines, num_groups)}
    for record in _records(path):
        kept = chosen.get(str(record.get("group")))
        if kept is not None and len(kept) < SHOWN_SIBLINGS:
            kept.append(record)
    groups = tuple(_group(records, outlines[name]) for name, records in chosen.items())
    return SampledStep(int(path.name.split("-")[1].split(".")[0]), groups)


def shortened(text: str) -> str:
    """`text`, cut after `SHOWN_CHARACTERS`; then its last line says how much is missing."""
    missing = len(text) - SHOWN_CHARACTERS
    return text if missing <= 0 else f"{text[:SHOWN_CHARACTERS]}\n[{count(missing, 'more character')}]"


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with suppress(DataError):  # the file of a run that was killed while writing it
        for _, record in islice(read_jsonl(path, "rollouts"), SCANNED_ROLLOUTS):
            yield record


def _is_accepted(record: dict[str, Any]) -> bool:
    return (record.get("verdict") or {}).get("status") == "accepted"


def _varied(outlines: dict[str, list[bool]], num_groups: int) -> list[str]:
    """Names of groups: in turns two that are mixed, one that failed, one that was accepted, in the file's order."""
    mixed = [name for name, accepted in outlines.items() if any(accepted) and not all(accepted)]
    failed = [name for name, accepted in outlines.items() if not any(accepted)]
    accepted = [name for name, accepted in outlines.items() if all(accepted)]
    turns = zip_longest(mixed[0::2], mixed[1::2], failed, accepted)
    return [name for turn in turns for name in turn if name is not None][:num_groups]


def _group(records: list[dict[str, Any]], outline: list[bool]) -> SampledGroup:
    records = sorted(records, key=lambda record: record.get("sample", 0))
    rollouts = [SampledRollout(record, _verdict(record)) for record in records]
    prompt = shortened(str(records[0].get("prompt", "")))
    return SampledGroup(str(records[0].get("item", "")), prompt, tuple(rollouts), sum(outline), len(outline))


def _verdict(record: dict[str, Any]) -> Verdict | None:
    verdict = record.get("verdict")
    return None if verdict is None else from_plain(Verdict, verdict, "verdict of a rollout")
