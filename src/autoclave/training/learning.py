"""From judged groups to the columns that an update reads, and back to an account of it. Pure, around `Algorithm`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, AlgorithmState, Column, LedgerEntry, ledger
from autoclave.core import Group, Rollout
from autoclave.core.rollout import FloatArray
from autoclave.workers import Batch


def mask_groups(algorithm: Algorithm, groups: Sequence[Group]) -> list[Group]:
    """The same groups, with a reason on every rollout that does not train."""
    masked = iter(algorithm.mask([rollout for group in groups for rollout in group.rollouts]))
    return [Group(group.item, tuple(next(masked) for _ in group.rollouts)) for group in groups]


def with_rewards(algorithm: Algorithm, batch: Batch, state: AlgorithmState) -> Batch:
    """`batch` before models look at it, with the column `computes` (B,): the rows that they must look at.

    It gets the coefficients of `state`, and, unless the algorithm needs to know what models say, `advantages` and
    `weights` (N,). Where these are known, rows that cannot move the policy need not be computed.
    """
    coefficients = {name: np.full(len(batch.response_rows), first, np.float32) for name, (first, *_) in state.items()}
    batch = batch.with_responses(**coefficients)
    if not algorithm.needs_log_probs:
        batch = _with_columns(batch, algorithm.prepare(tensors(batch)))
    return batch.with_rows(computes=algorithm.rows_to_compute(tensors(batch)).numpy())


def with_advantages(algorithm: Algorithm, batch: Batch) -> Batch:
    """`batch`, the rows that models looked at, with the `advantages` and `weights` that the update uses."""
    columns = tensors(batch)
    if algorithm.needs_log_probs:
        columns = algorithm.prepare(columns)
    return _with_columns(batch, algorithm.correct(columns))


def mask_discarded(algorithm: Algorithm, groups: Sequence[Group], batch: Batch) -> list[Group]:
    """The same groups, with a reason on every rollout that `with_rewards` took out; `batch` holds them all."""
    if algorithm.discard_reason is None:
        return list(groups)
    in_loss = iter(batch.rows["in_loss"])
    return [
        Group(group.item, tuple(r if next(in_loss) else r.masked(algorithm.discard_reason) for r in group.rollouts))
        for group in groups
    ]


def with_model_rewards(groups: Sequence[Group], batch: Batch) -> list[Group]:
    """The same groups, with what a reward model has added to the rewards of `batch`, which holds them all.

    The parts of a reward are then `verdict`, what it was, and `reward_model`, what was added. Verdicts stay as they
    are, and so do rollouts without one.
    """
    if "model_rewards" not in batch.rows:
        return list(groups)
    added = iter(batch.rows["model_rewards"].tolist())
    return [Group(group.item, tuple(_with_model_reward(r, next(added)) for r in group.rollouts)) for group in groups]


def _with_model_reward(rollout: Rollout, added: float) -> Rollout:
    reward = rollout.reward
    if reward.value is None:
        return rollout
    parts = {**reward.parts, "verdict": reward.value, "reward_model": added}
    return replace(rollout, reward=replace(reward, value=reward.value + added, parts=parts))


def token_ledger(full_batch: Batch, computed: Batch) -> list[LedgerEntry]:
    """Ledger entry of each rollout of `full_batch`; `computed`: its rows that `computes` chose, completed."""
    rows = np.flatnonzero(full_batch.rows["computes"])
    merged = full_batch.with_rows(**_spread(full_batch.rows, computed.rows, rows, len(full_batch))).with_responses(
        **_spread(
            full_batch.responses, computed.responses, full_batch.response_index(rows), len(full_batch.response_rows)
        )
    )
    return ledger(tensors(merged))


def trainer_log_probs(full_batch: Batch, computed: Batch) -> list[FloatArray | None]:
    """For each rollout of `full_batch` the (T,) `old_log_probs` of its response; None if it was not computed.

    `computed` are the rows of `full_batch` that its column `computes` chose, in order.
    """
    ends = np.cumsum(computed.response_lengths)[:-1]
    found = iter(np.split(computed.responses["old_log_probs"], ends))
    return [next(found) if computes else None for computes in full_batch.rows["computes"]]


def tensors(batch: Batch) -> dict[str, Tensor]:
    """The columns of `batch` as an algorithm reads them, `row` included. They share its memory."""
    columns = {**batch.rows, **batch.responses, Column.ROW.value: batch.response_rows}
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def _spread(
    known: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], index: np.ndarray, size: int
) -> dict[str, np.ndarray]:
    """The columns `found` of a part, at `index` among all; elsewhere what is `known`, else NaN or False."""
    columns: dict[str, np.ndarray] = {}
    for name, values in found.items():
        nothing = np.full(size, np.nan if values.dtype.kind == "f" else 0, values.dtype)
        columns[name] = known.get(name, nothing).copy()
        columns[name][index] = values
    return columns


def _with_columns(batch: Batch, columns: Mapping[str, Tensor]) -> Batch:
    """`batch` with the columns of the algorithm; those of tokens in float32."""
    found = {c: columns[c].numpy() for c in Column if c in columns and c not in (Column.ROW, Column.TURN)}
    return batch.with_rows(**{name: values for name, values in found.items() if name.is_per_row}).with_responses(
        **{name: values.astype(np.float32) for name, values in found.items() if not name.is_per_row}
    )
