"""Ratios over seeds with their intervals, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autoclave.evaluation.intervals import bootstrap_interval


@dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean over seeds."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(logs: Sequence[float]) -> Ratio:
        """From the logarithms of the ratios, one per seed."""
        interval = bootstrap_interval(logs)
        return Ratio(float(np.exp(np.mean(logs))), float(np.exp(interval.lower)), float(np.exp(interval.upper)))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


Ratios = Mapping[str, Mapping[str, Ratio]]
"""By the name of the arm, and by kind; the kind `all` is over all of them."""


def compared(logs: Mapping[str, Mapping[str, Sequence[float]]]) -> Ratios:
    """The ratios of each arm from their logarithms, by arm and kind, one per seed."""
    return {
        name: {kind: Ratio.of(part) for kind, part in of_kinds.items()}
        | {"all": Ratio.of([log for part in of_kinds.values() for log in part])}
        for name, of_kinds in logs.items()
    }


def print_table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[Ratio | float]]) -> None:
    """A line per arm."""
    print(f"\n{title}\n{'':<20}" + "".join(f"{column:>24}" for column in columns))
    for name, values in rows.items():
        cells = [str(value) if isinstance(value, Ratio) else f"{value:.3g}" for value in values]
        print(f"{name:<20}" + "".join(f"{cell:>24}" for cell in cells))


def plain(found: Any) -> Any:
    """Ratios as plain objects."""
    if isinstance(found, Mapping):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, Ratio):
        return asdict(found)
    return [plain(value) for value in found] if isinstance(found, list) else found
