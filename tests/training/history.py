"""What a run has learnt from over all its lives, and what must hold of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoclave.core.rollout import TURN

Name = tuple[int, ...]


class History:
    """By iteration, the requests that were learnt from, without what came after a checkpoint that the run went on from.

    A request is known by (seed, iteration, item, sample), that of a later turn by its number as well.
    """

    def __init__(self, *, problems: int, samples: int) -> None:
        """Of a run with so many problems in an iteration, and so many samples of each."""
        self.learnt: list[Sequence[Name]] = []
        self.saved = 0
        """Iterations in the last checkpoint."""
        self._problems, self._samples = problems, samples

    def go_back(self) -> None:
        """To the last checkpoint."""
        del self.learnt[self.saved :]

    @property
    def names(self) -> list[Name]:
        """All requests, in order."""
        return [name for iteration in self.learnt for name in iteration]

    def check(self, counts: Mapping[str, int]) -> None:
        """No request was learnt from twice; the ledger's account comes out even, and says the same."""
        assert len(set(self.names)) == len(self.names), "a request was learnt from twice"
        dropped = sum(count for name, count in counts.items() if name.startswith("dropped/"))
        ended = counts.get("trained", 0) + dropped
        assert counts.get("dispatched", 0) == ended + counts.get("requeued", 0) + counts["open"], counts
        assert ended - counts.get("dropped/resampled", 0) == len(self.names), counts

    def check_end(self, counts: Mapping[str, int], iterations: int) -> None:
        """Each place of each batch was learnt from once, and nothing is left."""
        self.check(counts)
        assert counts["open"] == 0
        first = [name for name in self.names if TURN not in name]
        places = sorted((iteration, index, sample % self._samples) for _, iteration, index, sample in first)
        assert places == [
            (i, g, n) for i in range(iterations) for g in range(self._problems) for n in range(self._samples)
        ]
