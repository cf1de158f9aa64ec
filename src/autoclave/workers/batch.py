"""The packed batch that trainer workers exchange: numpy arrays without padding.

All tokens of all rollouts stand in one 1-D array; offsets say where each begins. Columns hold a value per rollout or
per sampled token; their names are those of `algorithms.Column`. Padding appears only in `padded()`, for the model.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from autoclave.core.rollout import Group, IntArray


def even_parts(lengths: IntArray, stages: IntArray, parts: int) -> list[IntArray]:
    """Rows for each of `parts`, with about equal numbers of tokens within every stage.

    Ranks wait for each other at the end of a stage (an optimizer step), so that balance over the whole batch is not
    enough. Within a stage the longest row left goes to the part with the fewest tokens (Graham 1969, "Bounds on
    multiprocessing timing anomalies", LPT rule); ties go to the part with the fewest tokens in all, then the lowest.

    Args:
        lengths: (B,) tokens of each row.
        stages: (B,) int64, the stage of each row.
        parts: how many parts; 1 or more.

    Returns:
        (b_p,) int64 row indices of each part p, ascending; each row is in exactly one. In each stage, two parts differ
        by at most the tokens of its longest row.
    """
    rows: list[list[int]] = [[] for _ in range(parts)]
    totals = [0] * parts
    for stage in np.unique(stages):
        members = np.flatnonzero(stages == stage)
        loads = [(0, totals[part], part) for part in range(parts)]
        heapq.heapify(loads)
        for row in members[np.argsort(-lengths[members], kind="stable")].tolist():
            load, total, part = loads[0]
            rows[part].append(row)
            heapq.heapreplace(loads, (load + int(lengths[row]), total, part))
        for load, _, part in loads:
            totals[part] += load
    return [np.array(sorted(part), dtype=np.int64) for part in rows]


def bounded_parts(lengths: IntArray, most: int) -> list[IntArray]:
    """As few parts as the rule of `even_parts` fills to at most `most` tokens, and of about equal numbers of tokens.

    Args:
        lengths: (B,) tokens of each row.
        most: tokens of a part; a row that is as long or longer is a part of its own.

    Returns:
        (b_p,) int64 row indices of each part p, ascending; each row is in exactly one, and no part is empty.
    """
    is_alone = lengths >= most
    alone, others = np.flatnonzero(is_alone), np.flatnonzero(~is_alone)
    rest = lengths[others]
    parts = max(-(-int(rest.sum()) // most), int((2 * rest > most).sum()))  # no fewer can hold them
    together = even_parts(rest, np.zeros_like(rest), parts) if len(rest) else []
    while any(rest[part].sum() > most for part in together):
        parts += 1
        together = even_parts(rest, np.zeros_like(rest), parts)
    return [*(others[part] for part in together), *alone[:, None]]


Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """B rollouts, packed. M tokens in all, N of them sampled by the policy, which are trained on.

    tokens: (M,) int64, of each rollout its prompt, then what was sampled and observed, in order.
    sampled: (M,) bool; the first token of a rollout never is.
    offsets: (B + 1,) int64 into tokens.
    rows: columns of B values.
    responses: columns of N values, sampled tokens in order.
    """

    tokens: IntArray
    sampled: Array
    offsets: IntArray
    rows: Mapping[str, Array]
    responses: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """(B,) tokens, sampled or not."""
        return np.diff(self.offsets)

    @property
    def prompt_lengths(self) -> IntArray:
        """(B,) tokens before the first that was sampled."""
        rows = np.repeat(np.arange(len(self)), self.lengths)
        counts = np.concatenate([[0], np.cumsum(self.sampled)])
        return np.bincount(rows[counts[1:] == counts[self.offsets[rows]]], minlength=len(self))

    @property
    def response_lengths(self) -> IntArray:
        """(B,) sampled tokens."""
        return np.diff(np.concatenate([[0], np.cumsum(self.sampled)])[self.offsets])

    @property
    def response_rows(self) -> IntArray:
        """(N,) which row each sampled token belongs to."""
        return np.repeat(np.arange(len(self)), self.response_lengths)

    @staticmethod
    def from_sequences(
        sequences: Sequence[Sequence[Array]], *, rows: Mapping[str, Array], responses: Mapping[str, Array]
    ) -> Batch:
        """Pack sequences of parts, which are given and sampled tokens by turns; the columns are in that order."""
        parts = [part for sequence in sequences for part in sequence]
        lengths = [sum(map(len, sequence)) for sequence in sequences]
        is_sampled = [place % 2 == 1 for sequence in sequences for place in range(len(sequence))]
        return Batch(
            tokens=np.concatenate([np.zeros(0, np.int64), *parts]),
            sampled=np.repeat(np.array(is_sampled, dtype=bool), [len(part) for part in parts]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            rows=rows,
            responses=responses,
        )

    @staticmethod
    def from_groups(
        groups: Sequence[Group], *, minibatches: int, term_weights: Mapping[str, float] | None = None
    ) -> Batch:
        """All rollouts of `groups`; the column `minibatch` says which optimizer step a row is of. Groups stay whole.

        Each task is a term of the objective, with its factor in `term_weights`, by default 1.
        """
        factors = term_weights or {}
        names = sorted({group.item.task for group in groups})
        tasks = [rollout.item.task for group in groups for rollout in group.rollouts]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        group = np.repeat(np.arange(len(groups)), [len(group.rollouts) for group in groups])
        values = [rollout.reward.value for rollout in rollouts]
        return Batch.from_sequences(
            [[part for turn in rollout.turns for part in (turn.prompt_tokens, turn.tokens)] for rollout in rollouts],
            rows={
                "group": group,
                "minibatch": group * minibatches // max(1, len(groups)),
                "term": np.array([names.index(task) for task in tasks], dtype=np.int64),
                "term_weights": np.array([factors.get(task, 1.0) for task in tasks], dtype=np.float64),
                "length_limits": np.array([each.length_limit * each.most_turns for each in rollouts], dtype=np.int64),
                "in_loss": np.array([rollout.is_trained for rollout in rollouts], dtype=bool),
                "rewards": np.array([np.nan if value is None else value for value in values], dtype=np.float64),
            },
            responses={
                "turn": np.array([n for r in rollouts for n, t in enumerate(r.turns) for _ in t.tokens], np.int64),
                "sampler_log_probs": np.concatenate(
                    [np.zeros(0, np.float32), *(turn.log_probs for rollout in rollouts for turn in rollout.turns)]
                ),
            },
        )

    def with_rows(self, **columns: Array) -> Batch:
        """The same rollouts with further columns of B values."""
        return replace(self, rows={**self.rows, **columns})

    def with_responses(self, **columns: Array) -> Batch:
        """The same rollouts with further columns of N values."""
        return replace(self, responses={**self.responses, **columns})

    def select(self, rows: Array) -> Batch:
        """The rollouts `rows` (indices, or a (B,) bool mask) in that order."""
        indices = np.flatnonzero(rows) if rows.dtype == bool else rows
        token_index = _ranges(self.offsets[:-1][indices], self.lengths[indices])
        response_index = self.response_index(indices)
        return replace(
            self,
            tokens=self.tokens[token_index],
            sampled=self.sampled[token_index],
            offsets=np.concatenate([[0], np.cumsum(self.lengths[indices])]).astype(np.int64),
            rows={name: column[indices] for name, column in self.rows.items()},
            responses={name: column[response_index] for name, column in self.responses.items()},
        )

    def response_index(self, rows: Array) -> Array:
        """Positions among the N sampled tokens of those of `rows` (indices), one row after the other."""
        starts = np.cumsum(self.response_lengths) - self.response_lengths
        return _ranges(starts[rows], self.response_lengths[rows])

    @staticmethod
    def concatenate(batches: Sequence[Batch]) -> Batch:
        """The rows of all `batches`, which have the same columns, in order."""
        first = batches[0]
        lengths = np.concatenate([batch.lengths for batch in batches])
        return replace(
            first,
            tokens=np.concatenate([batch.tokens for batch in batches]),
            sampled=np.concatenate([batch.sampled for batch in batches]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            rows={name: np.concatenate([batch.rows[name] for batch in batches]) for name in first.rows},
            responses={name: np.concatenate([batch.responses[name] for batch in batches]) for name in first.responses},
        )

    def micro_batches(
        self, max_tokens: int, layout: Literal["padded", "packed", "shared_prompts"] = "padded"
    ) -> Iterator[Array]:
        """Row indices in pieces whose size is at most `max_tokens`, at least one row each.

        The size is that of the padded rows, which are taken by ascending length; or, if they will be packed, of their
        tokens, and pieces are of about equal size. With shared prompts, a prompt counts once, and stays with all its
        responses, or as many as fit.
        """
        if layout == "packed":
            yield from bounded_parts(self.lengths, max_tokens)
            return
        if layout == "shared_prompts":
            rows, lengths = self._by_prompt(max_tokens)
            yield from (np.concatenate([rows[place] for place in part]) for part in bounded_parts(lengths, max_tokens))
            return
        order, start = np.argsort(self.lengths, kind="stable"), 0
        for stop in range(1, len(order) + 1):
            if stop == len(order) or (stop + 1 - start) * self.lengths[order[stop]] > max_tokens:
                yield order[start:stop]
                start = stop

    def _by_prompt(self, max_tokens: int) -> tuple[list[list[int]], IntArray]:
        """Rows with the same prompt, in order, or as many of them as fit; and the tokens of each piece."""
        found: list[list[int]] = []
        sizes: list[int] = []
        last: dict[bytes, int] = {}
        lengths = self.prompt_lengths
        for row, (length, more) in enumerate(zip(lengths, self.lengths - lengths, strict=True)):
            prompt = self.tokens[self.offsets[row] :][:length].tobytes()
            if prompt not in last or sizes[last[prompt]] + more > max_tokens:
                last[prompt] = len(found)
                found.append([])
                sizes.append(length)
            found[last[prompt]].append(row)
            sizes[last[prompt]] += more
        return found, np.array(sizes, dtype=np.int64)

    def padded(self) -> tuple[Array, Array, Array]:
        """`input_ids` (B, L) int64, `attention_mask` (B, L) int64, `response_mask` (B, L) bool, padded on the right.

        The True entries of `response_mask` in row-major order are the N sampled tokens in order.
        """
        column = np.arange(self.lengths.max(initial=1))[None, :]
        attention = column < self.lengths[:, None]
        input_ids = np.zeros(attention.shape, dtype=np.int64)
        input_ids[attention] = self.tokens
        response = np.zeros_like(attention)
        response[attention] = self.sampled
        return input_ids, attention.astype(np.int64), response

    def packed(self) -> tuple[Array, Array, Array]:
        """`input_ids` (1, M) int64, `position_ids` (1, M) int64, `response_mask` (1, M) bool, without padding.

        Positions begin at 0 in each row. The True entries of `response_mask` are the N sampled tokens in order.
        """
        positions = _ranges(np.zeros(len(self), np.int64), self.lengths)
        return self.tokens[None], positions[None], self.sampled[None]

    def with_shared_prompts(self) -> tuple[Array, ...]:
        """A row of M tokens in which each prompt stands once, before all its responses, which are neighbours here.

        Returns:
            (1, M) each: `input_ids`; `position_ids`, which go on from the prompt in each response; `response_mask`,
            whose True entries are the N sampled tokens in order; the column of the token before each. Then
            `sequences` (B, L), the columns of each rollout, padded on the right; `places` (M,), of each token in it.
        """
        seen: dict[bytes, int] = {}
        lengths = self.prompt_lengths
        prompts = map(slice, self.offsets, self.offsets[:-1] + lengths)
        first = [seen.setdefault(self.tokens[prompt].tobytes(), row) for row, prompt in enumerate(prompts)]
        positions = _ranges(np.zeros(len(self), np.int64), self.lengths)
        is_own = positions >= np.repeat(lengths, self.lengths)
        here = np.arange(len(self.tokens))
        origin = np.where(is_own, here, np.repeat(self.offsets[first], self.lengths) + positions)
        kept = origin == here
        columns = (np.cumsum(kept) - 1)[origin]
        before = np.concatenate([[0], columns[:-1]])
        is_filled = np.arange(self.lengths.max(initial=1)) < self.lengths[:, None]
        sequences = np.zeros(is_filled.shape, dtype=np.int64)
        sequences[is_filled] = columns
        row = (self.tokens, positions, self.sampled, before)
        return *(values[kept][None] for values in row), sequences, np.flatnonzero(is_filled)[kept]


def _ranges(starts: Array, lengths: Array) -> Array:
    """The indices start, start + 1, ... of each of several ranges, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
