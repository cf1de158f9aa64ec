"""Number and positions of the alignment samples among the prompts of a step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mix:
    """Of one step."""

    alignment_samples: int
    """Alignment samples that are asked."""
    short: int
    """Alignment samples that were wanted and not there; programs are asked in their place."""
    carry: float
    """Remainder for the next step, less than one prompt."""


def mixed(prompts: int, share: float, *, carry: float, there: int) -> Mix:
    """The mix of a step with so many `prompts`, if `there` are so many alignment samples.

    What is left over is carried on; what was short is not made up for.
    """
    wanted = prompts * share + carry
    whole = int(wanted + 1e-9)  # 0.6 x 5 is 3, not 2.9999
    carry = max(0.0, wanted - whole)
    whole = min(whole, prompts - 1)  # a step asks for one program at least
    return Mix(min(whole, there), max(0, whole - there), carry)


def spread(programs: Sequence[T], alignment_samples: Sequence[T]) -> list[T]:
    """Both kinds, each in its order, with alignment samples evenly among programs: any stretch has about the same
    mix.
    """
    count = len(programs) + len(alignment_samples)
    places = {(2 * number + 1) * count // (2 * len(alignment_samples)) for number in range(len(alignment_samples))}
    ones, others = iter(programs), iter(alignment_samples)
    return list(_interleaved(count, places, ones, others))


def _interleaved(count: int, places: set[int], programs: Iterator[T], alignment_samples: Iterator[T]) -> Iterator[T]:
    for place in range(count):
        yield next(alignment_samples if place in places else programs)
