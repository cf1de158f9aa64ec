"""How a call to a worker group is split over its ranks, and how their results are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Dispatch(StrEnum):
    """What each rank is given and what the caller gets back."""

    ONE_TO_ALL = "one_to_all"
    """Every rank gets all arguments; the caller gets the result of rank 0."""
    DATA_PARALLEL = "data_parallel"
    """The first argument, a batch, is split by rows; results are concatenated in order."""


def register(dispatch: Dispatch) -> Callable[[F], F]:
    """Mark a worker's method as callable through its group."""

    def mark(method: F) -> F:
        method.__dispatch__ = dispatch  # type: ignore[attr-defined]
        return method

    return mark


def dispatch_of(method: Any) -> Dispatch | None:
    """How `method` was registered, or None."""
    return getattr(method, "__dispatch__", None)


def split(dispatch: Dispatch, args: tuple[Any, ...], ranks: int) -> list[tuple[Any, ...]]:
    """The arguments of each rank."""
    if dispatch is Dispatch.DATA_PARALLEL:
        first, *rest = args
        return [(part, *rest) for part in first.split(ranks)]
    return [args] * ranks


def join(dispatch: Dispatch, results: Sequence[Any]) -> Any:
    """What the caller gets from the results of all ranks, in order of rank."""
    if dispatch is Dispatch.DATA_PARALLEL:
        return type(results[0]).concatenate(results)
    return results[0]
