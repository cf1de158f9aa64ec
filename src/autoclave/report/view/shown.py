"""Rollouts as the page shows them: read again from the files, only those that were chosen, cut to what is shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoclave.report.cases import ShownAlignmentSample, ShownAnswer, shown_alignment_sample, shown_answer
from autoclave.report.text import quantity, shortened
from autoclave.report.view.sources import Source
from autoclave.report.view.survey import Chosen
from autoclave.report.view.tokens import Detokenizer, TokenStrip, token_strip
from autoclave.runs.reader import number
from autoclave.runs.rollouts import NO_TASK, RecordedRollout, read_rollouts

SHOWN_CHARACTERS = 8000
"""Most characters shown of a prompt, and of a response whose tokens are not."""


@dataclass(frozen=True, kw_only=True)
class ShownRollout(RecordedRollout):
    """One rollout. `strip` is None where tokens cannot be shown; then `no_tokens` says why."""

    answer: ShownAnswer | None
    """To an alignment sample."""
    strip: TokenStrip | None
    no_tokens: str
    facts: Sequence[tuple[str, str]]

    @property
    def response(self) -> str:
        return shortened(super().response, SHOWN_CHARACTERS)

    @property
    def advantage_sign(self) -> str:
        """`positive`, `zero`, `negative` or `none`."""
        if self.advantage is None:
            return "none"
        return "positive" if self.advantage > 0 else "negative" if self.advantage < 0 else "zero"


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """The rollouts of one problem in one step, in order of their sample. The counts are of all, shown or not."""

    source: Source
    number: int
    """Of the source among those of the page."""
    item: str
    prompt: str
    rollouts: Sequence[ShownRollout]
    num_accepted: int
    num_rollouts: int
    task: str = NO_TASK
    alignment_sample: ShownAlignmentSample | None = None

    @property
    def accepted_word(self) -> str:
        """Name of an accepted rollout."""
        return "exact" if self.alignment_sample else "accepted"


def read_chosen(source: Source, chosen: Iterable[Chosen], detokenizer: Detokenizer | None) -> dict[str, ShownGroup]:
    """The groups of `chosen` that are of `source`, by name. One pass over its file."""
    wanted = {group.group: group for group in chosen}
    groups: dict[str, ShownGroup] = {}
    found: defaultdict[str, list[ShownRollout]] = defaultdict(list)
    accepted: dict[str, list[bool]] = {name: [] for name in wanted}
    for rollout in read_rollouts(source.path) if wanted else ():
        name = rollout.group
        if name not in wanted:
            continue
        accepted[name].append(rollout.is_accepted)
        if name not in groups:
            groups[name] = _empty_group(source, wanted[name].source, rollout)
        if len(found[name]) < wanted[name].rollouts:
            found[name].append(shown_rollout(rollout, detokenizer))
    return {
        name: replace(
            group,
            rollouts=sorted(found[name], key=lambda rollout: rollout.sample or 0),
            num_accepted=sum(accepted[name]),
            num_rollouts=len(accepted[name]),
        )
        for name, group in groups.items()
    }


def _empty_group(source: Source, number: int, first: RecordedRollout) -> ShownGroup:
    """Facts that the rollouts of the group of `first` share."""
    alignment_sample = shown_alignment_sample(first.alignment_sample) if first.alignment_sample else None
    prompt = shortened(first.prompt, SHOWN_CHARACTERS)
    return ShownGroup(source, number, first.item, prompt, (), 0, 0, task=first.task, alignment_sample=alignment_sample)


def shown_rollout(rollout: RecordedRollout, detokenizer: Detokenizer | None) -> ShownRollout:
    """Content of the page about `rollout`."""
    columns = rollout.token_columns
    strip = token_strip(columns, detokenizer) if columns and detokenizer else None
    return ShownRollout(
        rollout.record,
        rollout.where,
        answer=shown_answer(rollout),
        strip=strip,
        no_tokens=_why_none(columns is not None, detokenizer is not None),
        facts=list(_facts(rollout, strip)),
    )


def _why_none(is_recorded: bool, has_tokenizer: bool) -> str:
    if not is_recorded:
        return "Tokens and their log-probs: not recorded."
    if not has_tokenizer:
        return "Tokens are not shown: the run folder has no start/tokenizer.json to tell their texts."
    return "Tokens are not shown: start/tokenizer.json of the run folder does not know all of their ids."


LEDGER = {
    "reward": "reward used",
    "group_mean": "group mean",
    "group_std": "group deviation",
    "weight": "share in loss",
    "importance": "importance weight",
}
"""Parts of the ledger that stand beside the advantage, and their names on the page."""


def _facts(rollout: RecordedRollout, strip: TokenStrip | None) -> Iterable[tuple[str, str]]:
    yield "policy", _versions(rollout.policy_versions)
    yield "ended by", rollout.finish_reason or "not recorded"
    if rollout.mask_reason:
        yield "not trained", rollout.mask_reason.replace("_", " ")
    yield from _ledger(rollout.ledger)
    if strip and strip.mean_mismatch is not None and strip.max_mismatch is not None:
        yield "log-prob mismatch", f"mean {quantity(strip.mean_mismatch)}, largest {quantity(strip.max_mismatch)} nats"
    elif strip:
        yield "log-prob mismatch", "not computed: it could not move the policy"


def _ledger(ledger: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    for key, label in LEDGER.items():
        if (value := number(ledger, key)) is not None:
            yield label, quantity(value)
    if ledger.get("in_baseline") is False:
        yield "in group baseline", "no"


def _versions(versions: Sequence[tuple[int, int, int]]) -> str:
    if not versions:
        return "not recorded"
    if len(versions) == 1:
        return f"version {versions[0][0]}"
    return ", ".join(f"version {version}: tokens {start} to {stop}" for version, start, stop in versions)
