"""Sums over the tokens of each rollout of a packed batch: columns (N,), and `row` (N,), whose token each is."""

from typing import Any, cast, get_args

import torch
from torch import Tensor


def check_tokens(row: Tensor, **columns: Tensor) -> None:
    """Raise ValueError if a column is not (N,), as `row` is."""
    for name, column in columns.items():
        if row.ndim != 1 or column.shape != row.shape:
            raise ValueError(f"{name} {tuple(column.shape)} and row {tuple(row.shape)} must both be (N,)")


def require_choice(name: str, value: object, choices: Any) -> None:
    """Raise ValueError if `value` of the option `name` is not one of `choices`, a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} = {value!r}: must be one of {', '.join(map(str, get_args(choices)))}")


def row_sums(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """(num_rows,) float64: the sum of `values` (N,) over the tokens of each row; 0 for a row without tokens."""
    return torch.zeros(num_rows, dtype=torch.float64, device=values.device).index_add(0, row, values.double())


def row_lengths(row: Tensor, num_rows: int) -> Tensor:
    """(num_rows,) int64: how many tokens each row has."""
    return torch.bincount(row, minlength=num_rows)


def numbered(group: Tensor) -> tuple[Tensor, int]:
    """The groups (B,) int64 renamed 0, 1, 2 ..., and how many there are."""
    names, index = cast(
        "tuple[Tensor, Tensor]",
        torch.unique(group, return_inverse=True),  # pyright: ignore[reportUnknownMemberType]  untyped in torch
    )
    return index, len(names)


def next_tokens(values: Tensor, row: Tensor) -> Tensor:
    """(N,): the value at the next token of the same row; 0 at its last. The tokens of a row stand in order."""
    order = torch.argsort(row, stable=True)  # each row in one piece, its tokens in order
    ordered = values[order]
    following = torch.zeros_like(ordered)
    same_row = row[order][1:] == row[order][:-1]
    following[:-1] = torch.where(same_row, ordered[1:], 0.0)
    return torch.empty_like(following).index_copy(0, order, following)


def discounted_sums(values: Tensor, row: Tensor, factor: float | Tensor) -> Tensor:
    """From each token to the end of its row: S_t = x_t + factor S_(t+1). The tokens of a row stand in order.

    Args:
        values: (N,) float.
        row: (N,) int64, the row of each token; rows may be interleaved.
        factor: in [0, 1]; one number, or (N,) float: that of what follows each token.

    Returns:
        (N,), dtype of `values`. Takes as many steps as the longest row has tokens, on all rows at once.
    """
    order = torch.argsort(row, stable=True)
    lengths = torch.bincount(row)
    ends = lengths.cumsum(0) - 1
    lengths, longest_first = lengths.sort(descending=True)
    ends = ends[longest_first]
    sums, factors = values[order], torch.as_tensor(factor, dtype=values.dtype).expand(len(values))[order]
    for back in range(1, int(lengths[0]) if len(lengths) else 0):
        token = ends[: int((lengths > back).sum())] - back
        sums[token] += factors[token] * sums[token + 1]
    return torch.empty_like(sums).index_copy(0, order, sums)
