"""Rollouts as the page shows them: read again from the files, only those that were chosen, cut to what is shown.

Tokens have their texts, how likely each was, and where sampler and trainer differ.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from autoclave.core.errors import DataError
from autoclave.report.cases import ShownAlignmentSample, ShownAnswer, shown_alignment_sample, shown_answer
from autoclave.report.text import quantity, shortened
from autoclave.report.view.survey import Chosen, Source
from autoclave.runs.reader import number
from autoclave.runs.rollouts import NO_TASK, RecordedRollout, TokenColumns, read_rollouts

SHOWN_TOKENS = 2000
"""Most tokens shown of a response; of longer ones both ends."""
LARGEST_MISMATCHES = 3
MISMATCH_LEVELS = (0.01, 0.1, 0.5)
"""|trainer - sampler|, nats, from which on a token is coloured, more, and most."""
SURPRISE_LEVELS = (0.7, 2.3, 4.6)
"""-log-prob of the sampler, nats: probabilities below 1/2, 1/10 and 1/100."""


class Detokenizer:
    """Texts of tokens, by the tokenizer that a run keeps beside the policy that it started from."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._size = tokenizer.get_vocab_size(with_added_tokens=True)

    @staticmethod
    def of_run(folder: Path) -> "Detokenizer | None":
        """That of the run in `folder`; None if it keeps none. Raises DataError: the file is damaged."""
        path = folder / "start" / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            return Detokenizer(Tokenizer.from_file(str(path)))
        except Exception as error:  # noqa: BLE001  the library raises nothing more special
            raise DataError(f"{path}: not a tokenizer ({' '.join(str(error).split())[:120]})") from None

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """The text of each token; None if an id is not of this tokenizer.

        Together they are the decoded text. A character whose bytes are spread over several tokens stands in the last.
        """
        if any(not 0 <= token < self._size for token in ids):
            return None
        alone = self._tokenizer.decode_batch([[token] for token in ids], skip_special_tokens=False)
        return alone if "".join(alone) == self._text(ids) else self._grown(ids)

    def _grown(self, ids: Sequence[int]) -> list[str]:
        """By what each token adds to the text of those just before it, since the text of some depends on these."""
        found: list[str] = []
        context, start = 0, 0  # the first token of a known text, and the first that waits for its last byte
        for stop in range(1, len(ids) + 1):
            known, grown = self._text(ids[context:start]), self._text(ids[context:stop])
            is_whole = len(grown) > len(known) and not grown.endswith("\N{REPLACEMENT CHARACTER}")
            if is_whole or stop == len(ids) or stop - start >= _LONGEST_CHARACTER:
                found.append(grown[len(known) :])
                context, start = start, stop
            else:
                found.append("")
        return found

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


_LONGEST_CHARACTER = 4
"""Bytes in UTF-8."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its place in the response, its text, and its log-probs in nats, NaN where not recorded."""

    index: int
    text: str
    id: int
    sampler: float
    trainer: float

    @property
    def mismatch(self) -> float:
        return self.trainer - self.sampler

    @property
    def css_class(self) -> str:
        """`g1` to `g3` by the gap and `s1` to `s3` by the surprise."""
        names = [("g", _level(self.mismatch, MISMATCH_LEVELS)), ("s", _level(self.sampler, SURPRISE_LEVELS))]
        return " ".join(f"{name}{level}" for name, level in names if level)

    @property
    def numbers(self) -> str:
        """`id sampler trainer` for the script of the page; `-` where not recorded."""
        shown = (f"{value:.5g}" if math.isfinite(value) else "-" for value in (self.sampler, self.trainer))
        return f"{self.id} {' '.join(shown)}"


@dataclass(frozen=True, slots=True)
class TokenStrip:
    """A response as tokens. Figures are over all of them, also those left out."""

    head: Sequence[Token]
    left_out: int
    """Between `head` and `tail`."""
    tail: Sequence[Token]
    largest: Sequence[Token]
    """The largest mismatches that are coloured at all, largest first."""
    mean_mismatch: float | None
    max_mismatch: float | None
    is_processed: bool
    """The sampler's log-probs are of its distribution after top-p."""

    @property
    def numbers(self) -> str:
        return ";".join(token.numbers for token in (*self.head, *self.tail))


def token_strip(columns: TokenColumns, detokenizer: Detokenizer) -> TokenStrip | None:
    """Tokens of a response as they are shown; None if they are not of the tokenizer."""
    count = len(columns.ids)
    head, tail = (count, count) if count <= SHOWN_TOKENS else (SHOWN_TOKENS // 2, count - SHOWN_TOKENS // 2)
    mismatches = np.abs(columns.mismatches)
    known = mismatches[np.isfinite(mismatches)]
    by_size = np.argsort(-np.nan_to_num(mismatches), kind="stable")[:LARGEST_MISMATCHES].tolist()

    def tokens(indices: Sequence[int], pieces: Sequence[str] | None) -> list[Token]:
        numbers = (columns.ids, columns.sampler.tolist(), columns.trainer.tolist())
        return [
            Token(index, piece, *(column[index] for column in numbers))
            for index, piece in zip(indices, pieces or (), strict=True)
        ]

    parts = [range(head), range(tail, count), [index for index in by_size if mismatches[index] >= MISMATCH_LEVELS[0]]]
    shown = [detokenizer.pieces([columns.ids[index] for index in part]) for part in parts]
    if any(pieces is None for pieces in shown):
        return None
    return TokenStrip(
        head=tokens(parts[0], shown[0]),
        left_out=tail - head,
        tail=tokens(parts[1], shown[1]),
        largest=tokens(parts[2], shown[2]),
        mean_mismatch=float(known.mean()) if len(known) else None,
        max_mismatch=float(known.max()) if len(known) else None,
        is_processed=columns.is_processed,
    )


def _level(value: float, levels: Sequence[float]) -> int:
    return sum(abs(value) >= level for level in levels)  # NaN is below all


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
    longest = SHOWN_CHARACTERS

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
    if rollout.record.get("ended_by"):
        yield "episode ended by", str(rollout.record["ended_by"]).replace("_", " ")
    if errors := number(rollout.record, "tool_errors"):
        yield "tool errors", quantity(errors)
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
