"""Where metrics go beside `metrics.jsonl`. A sink is a mirror: what it holds is in that file too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class MetricSink(Protocol):
    """Takes the metrics of one run."""

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Record finite numbers of a step, by name without `kind`.

        Raises:
            HostError: it cannot be reached; the run goes on without it.
        """
        ...

    def close(self) -> None:
        """Write what is buffered. Nothing is written afterwards.

        Raises:
            HostError: it cannot be reached.
        """
        ...


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among `metrics`: what a sink can draw."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """See `MetricSink`."""
        for name, value in metrics.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """See `MetricSink`."""
        self._board.close()
