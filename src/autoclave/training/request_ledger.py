"""What became of every request: trained, dropped for a reason, or asked again. None is lost, none counts twice.

A request is known by the numbers that its random numbers come from: (seed, iteration, item, sample).
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from autoclave.core import CheckpointError, FaultError
from autoclave.core.files import write_atomically
from autoclave.training.learned import Learned

FILE = "requests.json"
DISPATCHED, TRAINED, REQUEUED = "dispatched", "trained", "requeued"
REFILLED = "refilled"
"""Why a rollout was dropped: its group taught nothing, and its item was asked again."""
NO_SIGNAL = "no_signal"
"""Why a rollout was dropped: no reason masks it, but its advantage is 0, and so is its share in the loss."""

Name = tuple[int, ...]


class RequestLedger:
    """An account of the requests of a run. Several threads may write to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything."""
        self._open: set[Name] = set()
        self._counts: Counter[str] = Counter()

    def dispatch(self, names: Iterable[Name]) -> None:
        """These are asked now.

        Raises:
            FaultError: one is already asked and not done.
        """
        with self._lock:
            for name in names:
                if name in self._open:
                    raise FaultError(f"request {name} is dispatched, and it was dispatched before and is not done")
                self._open.add(name)
                self._counts[DISPATCHED] += 1

    def drop(self, names: Iterable[Name], reason: str) -> None:
        """These are done, and teach nothing for this reason.

        Raises:
            FaultError: one was not asked, or is done already.
        """
        with self._lock:
            for name in names:
                self._end(name, f"dropped/{reason}")

    def learn(self, learned: Learned) -> None:
        """The rollouts of a `learn` are done.

        Raises:
            FaultError: one was not asked, or is done already.
        """
        rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
        with self._lock:
            for rollout, entry in zip(rollouts, learned.ledger, strict=True):
                trains = rollout.is_trained and entry.weight
                reason = rollout.mask_reason or NO_SIGNAL
                self._end(rollout.request, TRAINED if trains else f"dropped/{reason}")

    def check(self, outstanding: Iterable[Name]) -> None:
        """Check that just these are asked and not done.

        Raises:
            FaultError: a request is lost, or there is one that nobody asked; the message names one.
        """
        with self._lock:
            there = set(outstanding)
            for lost in self._open - there:
                raise FaultError(f"request {lost} was dispatched and is neither done nor under way")
            for unknown in there - self._open:
                raise FaultError(f"request {unknown} is under way and was never dispatched")

    def counts(self) -> dict[str, int]:
        """How many requests were dispatched, trained, dropped by reason and requeued, and how many are open."""
        with self._lock:
            return {**self._counts, "open": len(self._open)}

    def _end(self, name: Name, how: str) -> None:
        if name not in self._open:
            raise FaultError(f"request {name} ends ({how}), and it was never dispatched, or has ended before")
        self._open.remove(name)
        self._counts[how] += 1

    # --- With checkpoints

    def save(self, folder: Path) -> None:
        """Write the account into the folder of a checkpoint."""
        with self._lock:
            content = {"counts": dict(self._counts), "open": sorted(self._open)}
        write_atomically(folder / FILE, json.dumps(content) + "\n")

    def load(self, folder: Path, kept: Iterable[Name]) -> None:
        """Go on from what `save` wrote. Of those that were not done, `kept` still count; the others are asked again.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        try:
            found = json.loads((folder / FILE).read_text(encoding="utf-8"))
            counts: Mapping[str, int] = {str(name): int(count) for name, count in found["counts"].items()}
            was_open = {tuple(map(int, name)) for name in found["open"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{folder / FILE}: damaged ({' '.join(str(error).split())[:120]})") from None
        with self._lock:
            self._open = was_open & set(kept)
            self._counts = Counter(counts)
            self._counts[REQUEUED] += len(was_open - self._open)
            self._counts[DISPATCHED] -= len(was_open - self._open)
