"""Fate of every request: trained, dropped for a reason, or asked again. None is lost, none counts twice.

A request is known by the numbers that its random numbers come from: (seed, iteration, item, sample), and from the
second turn of a rollout on the number of the turn.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from autoclave.core import FaultError
from autoclave.core.files import checkpoint_data, write_atomically
from autoclave.rollout import Collection
from autoclave.rollout.collection import Name
from autoclave.training.learned import Learned

FILE = "requests.json"
DISPATCHED, TRAINED, DROPPED, REQUEUED = "dispatched", "trained", "dropped", "requeued"
RESAMPLED = "resampled"
"""Reason of a dropped rollout: its group had zero advantage, and its item was sampled again."""
NO_SIGNAL = "no_signal"
"""Reason of a dropped rollout: no reason masks it, but its advantage is 0, and so is its share in the loss."""


class RequestLedger:
    """An account of the requests of a run."""

    def __init__(self) -> None:
        self._batches: list[Collection] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything; what is under way is abandoned, so that it asks nothing more."""
        self.close()
        self._open: set[Name] = set()
        self._counts: Counter[str] = Counter()
        self._batches = []

    def close(self) -> None:
        """Abandon what is under way, and with it the environments of its episodes."""
        for batch in self._batches:
            batch.abandon("the run ended or went on without it")

    def watch(self, batch: Collection) -> None:
        """Account for what `batch` asks, from its first request to its last."""
        self._batches.append(batch)

    def learn(self, learned: Learned) -> None:
        """The rollouts of a `learn` are done. Raises FaultError: one was not asked, or is done already."""
        self._read()
        rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
        for rollout, entry in zip(rollouts, learned.ledger, strict=True):
            trains = rollout.is_trained and entry.weight
            for name in rollout.requests:
                self._end(name, TRAINED if trains else f"{DROPPED}/{rollout.mask_reason or NO_SIGNAL}")

    def check(self, ahead: Iterable[Collection]) -> None:
        """Check that just the requests of `ahead` are asked and not done.

        Raises FaultError: a request is lost, or was never made; the message names one.
        """
        self._batches = list(ahead)
        there = self._read()
        for lost in self._open - there:
            raise FaultError(f"request {lost} was dispatched and is neither done nor under way")
        for unknown in there - self._open:
            raise FaultError(f"request {unknown} is under way and was never dispatched")

    def counts(self) -> dict[str, int]:
        """Numbers of requests that were dispatched, trained, dropped by reason and requeued, and how many are open."""
        return {**self._counts, "open": len(self._open)}

    def state(self) -> str:
        """Description of what is in flight, a line for each batch; from any thread."""
        return "\n".join(f"{batch.state()}" for batch in tuple(self._batches)) or "no batch is under way"

    def _read(self) -> set[Name]:
        """Note what the batches have asked, and what they asked again; returns what their groups are of."""
        there: set[Name] = set()
        for batch in self._batches:
            account = batch.take_account()
            for name in account.asked:
                if name in self._open:
                    raise FaultError(f"request {name} is dispatched, and it was dispatched before and is not done")
                self._open.add(name)
            self._counts[DISPATCHED] += len(account.asked)
            for name in account.replaced:
                self._end(name, f"{DROPPED}/{RESAMPLED}")
            there.update(account.there)
        return there

    def _end(self, name: Name, how: str) -> None:
        if name not in self._open:
            raise FaultError(f"request {name} ends ({how}), and it was never dispatched, or has ended before")
        self._open.remove(name)
        self._counts[how] += 1

    def save(self, folder: Path) -> None:
        """Write the account into the folder of a checkpoint, after the groups that it holds were read.

        What was asked again since the last check is in it: a group of such requests may be complete by now, and kept.
        """
        self._read()
        content = {"counts": dict(self._counts), "open": sorted(self._open)}
        write_atomically(folder / FILE, json.dumps(content) + "\n")

    def load(self, folder: Path, kept: Iterable[Name] = ()) -> None:
        """Go on from what `save` wrote. Of those that were not done, `kept` still count; the others are asked again.

        Raises CheckpointError: it is missing or damaged.
        """
        with checkpoint_data(folder / FILE) as found:
            counts: Mapping[str, int] = {str(name): int(count) for name, count in found["counts"].items()}
            was_open = {tuple(map(int, name)) for name in found["open"]}
        self._open = was_open & set(kept)
        self._batches = []
        self._counts = Counter(counts)
        self._counts[REQUEUED] += len(was_open - self._open)
