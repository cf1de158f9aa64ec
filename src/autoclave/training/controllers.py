"""State that an algorithm carries from one `learn` to the next: the states of its controllers, kept with
checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from autoclave.algorithms import Algorithm
from autoclave.core import CheckpointError
from autoclave.core.files import write_atomically

FILE = "algorithm.json"


class ControllerState:
    """The state of `algorithm`, which begins anew with every run that does not resume."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.restart()

    def restart(self) -> None:
        """Go back to the state before the first step."""
        self.state = self._algorithm.first_state

    def advance(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Go on to the next step, after one with these metrics.

        Returns:
            The coefficients of the step that was taken, as metrics.
        """
        used = {name: first for name, (first, *_) in self.state.items()}
        self.state = self._algorithm.next_state(self.state, metrics)
        return used

    def save(self, folder: Path) -> None:
        """Write the state into the folder of a checkpoint."""
        write_atomically(folder / FILE, json.dumps(self.state) + "\n")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        try:
            found = json.loads((folder / FILE).read_text(encoding="utf-8"))
            self.state = {name: tuple(map(float, found[name])) for name in self._algorithm.first_state}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{folder / FILE}: damaged ({' '.join(str(error).split())[:120]})") from None
