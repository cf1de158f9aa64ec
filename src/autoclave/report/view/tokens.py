"""The tokens of a response as a reader sees them: texts, how likely each was, where sampler and trainer differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from autoclave.core.errors import DataError
from autoclave.runs.rollouts import TokenColumns

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
    def of_run(folder: Path) -> Detokenizer | None:
        """That of the run in `folder`; None if it keeps none.

        Raises:
            DataError: the file is damaged.
        """
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
        context, start = (
            0,
            0,
        )  # tokens whose text is known begin at `context`; those at `start` wait for their last byte
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
