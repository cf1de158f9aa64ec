"""Checkpoints that are whole or absent, taken between two iterations.

A checkpoint is written under a name that nobody reads, made durable, and renamed. It names the configuration that it
belongs to; one of another configuration is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.config import TrainConfig
from autoclave.core import CheckpointError, HostError
from autoclave.core.files import sync_directory

FREE_TO_CHANGE = (
    "name", "evaluation", "checkpoint", "health", "judge", "sandbox", "no_verdict_limit",
    "micro_batch_tokens", "pools", "workers", "worker_restarts", "loggers",
)  # fmt: skip
"""Settings that a resumed run may have other values of; all others decide what is learnt."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk: after `step` iterations, with `seconds` spent by stage until then."""

    folder: Path
    step: int
    seconds: dict[str, float]

    @property
    def model(self) -> Path:
        """Folder of weights and tokenizer, in Hugging Face form."""
        return self.folder / "model"

    @property
    def adapter(self) -> Path:
        """Folder of the adapter that learns, where one does."""
        return self.folder / "adapter"


def save_checkpoint(
    parent: Path,
    step: int,
    config: TrainConfig,
    seconds: dict[str, float],
    *,
    keep: int,
    save_state: Callable[[Path], None],
) -> Checkpoint:
    """Write the checkpoint of `step`, then drop all but the newest `keep`. A failure leaves the older ones usable.

    Raises:
        HostError: the disk is full or fails.
    """
    folder = parent / f"step-{step:06d}"
    partial = parent / f".{folder.name}.partial"
    for leftover in parent.glob(".step-*"):  # of runs that were killed
        shutil.rmtree(leftover)
    try:
        partial.mkdir(parents=True)
        save_state(partial)
        state = {"step": step, "seconds": seconds, "config": config.model_dump(mode="json")}
        (partial / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
        _make_durable(partial)
        _drop(folder)
        partial.rename(folder)
        sync_directory(parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, HostError):
            raise HostError(f"{folder}: cannot be written ({error.strerror}); the older checkpoints stay") from error
        raise
    for old in _complete(parent)[:-keep]:
        _drop(old)
    return Checkpoint(folder, step, seconds)


def latest_checkpoint(parent: Path, config: TrainConfig) -> Checkpoint | None:
    """The newest complete checkpoint, or None if there is none.

    Raises:
        CheckpointError: it was made with other settings, or cannot be read.
    """
    complete = _complete(parent)
    if not complete:
        return None
    folder = complete[-1]
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        made_with = TrainConfig.model_validate_json(json.dumps(state["config"]))
        step, seconds = int(state["step"]), dict(state["seconds"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder}/state.json: damaged ({' '.join(str(error).split())[:120]})") from None
    difference = _first_difference(made_with.model_dump(mode="json"), config.model_dump(mode="json"))
    if difference:
        path, was, now = difference
        raise CheckpointError(
            f"{folder}: made with {path} = {was!r}, now it is {now!r}; resume with the same settings, "
            "or start another run with --out"
        )
    return Checkpoint(folder, step, seconds)


def _drop(folder: Path) -> None:
    """Remove a checkpoint; it is whole under its name until it is gone from there."""
    if folder.exists():
        hidden = folder.rename(folder.with_name(f".{folder.name}.dropped"))
        shutil.rmtree(hidden)


def _complete(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("step-*") if (path / "state.json").is_file())


def _first_difference(was: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            if not path and key in FREE_TO_CHANGE:
                continue
            found = _first_difference(was.get(key), now.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return None
    return None if was == now else (path, was, now)


def _make_durable(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            handle = os.open(Path(root) / name, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(Path(root))
