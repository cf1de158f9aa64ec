"""What every benchmark shares: the options, the environment line, side-by-side timing, and the JSON file.

A benchmark is a file of this folder that ends with a guard for `__main__`, whose `main` takes its options from
`arguments` or `argument_parser` and hands its figures to `finish`. The tests find every such file and run it with
`--tiny --json FILE`: the smallest counts with which each figure gets a value, however meaningless, in a few seconds.
`--tiny` sets `options.quick` as well; `sized` picks a count, and `TINY` in `runs.py` has the settings of a training run
of one step. A file that is not a benchmark is imported by one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from autoclave.training.summary import machine, versions

T = TypeVar("T")


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Keep this thread, and the threads and processes that it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def arguments(description: str) -> argparse.Namespace:
    """`--quick`, `--tiny` and `--json FILE`, which every benchmark has."""
    return argument_parser(description).parse_args()


def argument_parser(description: str) -> argparse.ArgumentParser:
    """A parser of what every benchmark has, for one that has more."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="end within a minute, with wider spreads")
    parser.add_argument("--tiny", action=_Tiny, nargs=0, default=False, help="one of everything: does it still run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return parser


class _Tiny(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        *_: Any,
    ) -> None:
        namespace.tiny = namespace.quick = True


def sized(options: argparse.Namespace, full: T, quick: T, tiny: T) -> T:
    """The count, or the settings, for the size that the options ask for."""
    return tiny if options.tiny else quick if options.quick else full


def environment() -> dict[str, Any]:
    """Date, commit, machine, load and versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "load": round(os.getloadavg()[0], 2),
        **machine(),
        **versions(),
    }


def print_environment() -> None:
    """The first line of every benchmark."""
    print("  ".join(f"{name} {value}" for name, value in environment().items()))


def finish(name: str, figures: Mapping[str, Any], path: Path | None, **details: Any) -> None:
    """Print the figures, and write them if asked; `details` are written beside them and not printed."""
    print()
    for key, value in figures.items():
        print(f"{key:<40}{value:>12.4g}" if isinstance(value, float) else f"{key:<40}{value!s:>12}")
    if path:
        content = {"benchmark": name, "figures": dict(figures), **details, "environment": environment()}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Comparison:
    """Ratios of two ways to do the same work, measured in turn."""

    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The ratio to quote."""
        return median(self.ratios)

    def __str__(self) -> str:
        ordered = sorted(self.ratios)
        return f"{self.median:6.3f}   [{ordered[0]:.3f} .. {ordered[-1]:.3f}]   rounds {len(ordered)}"


def compare(ours: Callable[[], float], theirs: Callable[[], float], *, rounds: int) -> Comparison:
    """Cost of ours over theirs. Each call returns its cost; the two alternate, so a drifting machine hits both."""
    ours(), theirs()  # warm up
    ratios = []
    for number in range(rounds):
        # Who goes first alternates too: what one leaves in caches helps the other.
        first, second = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        a, b = first(), second()
        ratios.append(a / b if number % 2 == 0 else b / a)
    return Comparison(tuple(ratios))


def seconds(work: Callable[[], Any]) -> float:
    """Wall-clock seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _commit() -> str:
    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
        return run.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+dirty" if git("status", "--porcelain") else "")
