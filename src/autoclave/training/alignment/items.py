"""The prompts of each step: programs to write, and alignment samples from the buffer.

What was dealt for a step depends on what was learnt before it, so it is kept until the step is done: asked again, after
a checkpoint was loaded too, it is the same.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autoclave.core import AlignmentSample, TaskItem
from autoclave.core.json import from_plain, to_plain
from autoclave.training.alignment.buffer import AlignmentBuffer
from autoclave.training.learned import ShuffledItems


@dataclass(frozen=True, slots=True)
class MixedBatch:
    """Items of a step: positions of programs in the order of their items, alignment samples, and their mix."""

    programs: range
    alignment_samples: list[AlignmentSample]
    mix: "Mix"


class MixedBatches:
    """An `ItemSource` of programs and alignment samples."""

    def __init__(
        self,
        programs: ShuffledItems,
        buffer: AlignmentBuffer,
        item_of: Callable[[AlignmentSample], TaskItem],
        *,
        share: float,
    ) -> None:
        """Deal `programs`, and samples of `buffer` as the items that `item_of` makes, `share` of all prompts."""
        self._programs, self._buffer, self._item_of, self._share = programs, buffer, item_of, share
        self.per_iteration = programs.per_iteration
        self.restart()

    def restart(self) -> None:
        """Deal from the start."""
        self._batches: dict[int, MixedBatch] = {}
        self._position, self._carry = 0, 0.0

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration, counted from 0; see `ItemSource`."""
        batch = self.batch(iteration)
        programs = self._programs.at_positions(batch.programs)
        return spread(programs, [self._item_of(each) for each in batch.alignment_samples])

    def batch(self, iteration: int) -> MixedBatch:
        """Items of an iteration, decided when it is first requested."""
        if iteration not in self._batches:
            mix = mixed(self.per_iteration, self._share, carry=self._carry, there=len(self._buffer))
            programs = range(self._position, self._position + self.per_iteration - mix.alignment_samples)
            self._batches[iteration] = MixedBatch(programs, self._buffer.take(mix.alignment_samples), mix)
            self._position, self._carry = programs.stop, mix.carry
        return self._batches[iteration]

    def forget(self, done: int, ahead: Collection[int]) -> None:
        """Forget what the first `done` iterations asked, except for those of `ahead`, of which something is open."""
        self._batches = {number: batch for number, batch in self._batches.items() if number >= done or number in ahead}

    def to_plain(self) -> dict[str, Any]:
        """All that is not in the buffer, ready for JSON."""
        return {
            "position": self._position,
            "carry": self._carry,
            "dealt": [
                {
                    "iteration": iteration,
                    "programs": [batch.programs.start, batch.programs.stop],
                    "alignment_samples": [to_plain(each) for each in batch.alignment_samples],
                    "mix": to_plain(batch.mix),
                }
                for iteration, batch in self._batches.items()
            ],
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Become what `to_plain` told.

        Raises DataError, KeyError, TypeError, ValueError: it told no such thing.
        """
        self._position, self._carry = int(plain["position"]), float(plain["carry"])
        self._batches = {
            int(each["iteration"]): MixedBatch(
                range(*each["programs"]),
                [
                    from_plain(AlignmentSample, alignment_sample, "alignment_sample")
                    for alignment_sample in each["alignment_samples"]
                ],
                from_plain(Mix, each["mix"], "mix"),
            )
            for each in plain["dealt"]
        }


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
    """Both kinds, each in its order, with alignment samples evenly among programs."""
    count = len(programs) + len(alignment_samples)
    places = {(2 * number + 1) * count // (2 * len(alignment_samples)) for number in range(len(alignment_samples))}
    ones, others = iter(programs), iter(alignment_samples)
    return list(_interleaved(count, places, ones, others))


def _interleaved(count: int, places: set[int], programs: Iterator[T], alignment_samples: Iterator[T]) -> Iterator[T]:
    for place in range(count):
        yield next(alignment_samples if place in places else programs)
