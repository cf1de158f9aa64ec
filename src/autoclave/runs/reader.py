"""Read a run folder: configuration, metrics, summary, and where its rollouts are.

Also of a run that is still going or was killed: what is not there yet is None or empty, and a line that was cut while
it was being written is left out. Not here: rollouts themselves (`rollouts.py`), anything that is drawn.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoclave.core.errors import DataError, InputError
from autoclave.core.json import parse_object

Row = Mapping[str, Any]
"""One line of metrics.jsonl."""

OF_TASK = "evaluation/"
"""Before the name of a task: the kind of rows about other held-out items than problems."""

EVENTS = ("alert", "rollback")
"""Kinds of rows about the health of the run."""

_ROLLOUT_FILE = re.compile(r"step-(\d+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class Run:
    """Content of a run folder. Rows are in order of their step, one per step."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    sft: tuple[Row, ...]
    train: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    task_evaluations: Mapping[str, tuple[Row, ...]]
    """On held-out items of other tasks, by their names."""
    rollout_files: tuple[Path, ...]
    """In order of their step."""
    events: tuple[Row, ...] = ()
    """Alerts and rollbacks, in the order in which they were written."""

    @property
    def name(self) -> str:
        return str(self.config.get("name") or self.folder.name)

    @property
    def steps_done(self) -> int:
        return int(self.train[-1]["step"]) if self.train else 0


def read_run(folder: Path) -> Run:
    """The run in `folder`.

    Raises InputError: `folder` is missing or is not a run folder, or its configuration is not a YAML mapping.
    DataError: its summary is not a JSON object.
    """
    config = _read_config(folder)
    summary = folder / "summary.json"
    rows = read_metrics(folder / "metrics.jsonl")
    return Run(
        folder=folder,
        config=config,
        summary=parse_object(summary.read_text("utf-8"), str(summary)) if summary.exists() else None,
        sft=rows["sft"],
        train=rows["train"],
        evaluations=rows["evaluation"],
        task_evaluations={
            kind.removeprefix(OF_TASK): found for kind, found in rows.items() if kind.startswith(OF_TASK)
        },
        rollout_files=_rollout_files(folder / "rollouts"),
        events=tuple(read_events(folder / "metrics.jsonl")),
    )


def number(row: Mapping[str, Any] | None, key: str) -> float | None:
    """The value of `key` if it is there and is a finite number."""
    value = row.get(key) if row else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(f"run folder {folder}: no such folder; give the folder that `autoclave train` wrote")
    path = folder / "config.yaml"
    if not path.is_file():
        raise InputError(f"{folder}: not a run folder, config.yaml is missing; give the folder of `autoclave train`")
    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: expected a mapping of settings, found {type(config).__name__}")
    return config


def read_metrics(path: Path) -> dict[str, tuple[Row, ...]]:
    """Rows by kind. A resumed run writes the steps since its checkpoint again, and the last one counts."""
    latest: dict[str, dict[int, Row]] = {"sft": {}, "train": {}, "evaluation": {}}
    for row in _lines(path):
        step, kind = number(row, "step"), str(row.get("kind"))
        if step is not None and (kind in latest or kind.startswith(OF_TASK)):
            latest.setdefault(kind, {})[int(step)] = row
    return {kind: tuple(rows[step] for step in sorted(rows)) for kind, rows in latest.items()}


def read_events(path: Path) -> list[Row]:
    """Alerts and rollbacks, in the order in which they were written; those of steps done twice are there twice."""
    return [row for row in _lines(path) if row.get("kind") in EVENTS and number(row, "step") is not None]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield parse_object(line.decode("utf-8"), str(path))
            except (DataError, UnicodeDecodeError):
                continue  # cut by a kill while it was being written; the resumed run writes its step again


def _rollout_files(folder: Path) -> tuple[Path, ...]:
    found = ((_ROLLOUT_FILE.fullmatch(path.name), path) for path in folder.glob("step-*.jsonl.gz"))
    return tuple(path for _, path in sorted((int(match[1]), path) for match, path in found if match))
