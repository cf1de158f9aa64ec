"""Checkpoints that are whole or absent, taken between two iterations and written while the next one runs.

A checkpoint is written under a temporary name, made durable, and renamed. It names the configuration that it
belongs to, and the inputs that no setting names, as the architecture of the policy; one of others is refused.
"""

import hashlib
import json
import shutil
from collections.abc import Generator, Mapping
from concurrent.futures import wait as wait_for_all
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from autoclave.config import TrainConfig
from autoclave.core import CheckpointError, HostError
from autoclave.core.files import check_manifest, checkpoint_data, drop_folder, make_durable, sync_directory
from autoclave.models import INCIDENTAL
from autoclave.training.saved_groups import Known, save_groups

FREE_TO_CHANGE = (
    "name", "evaluation", "checkpoint", "health", "judge", "sandbox", "no_verdict_limit",
    "micro_batch_tokens", "pools", "workers", "watchdog_s", "worker_restarts", "loggers", "sft.checkpoint_every",
    "trainer.sharding", "trainer.activation_checkpointing", "trainer.cpu_offload", "trainer.compile",
    "trainer.critic_sharding", "trainer.reference_sharding", "trainer.shard_size",
    "trainer.logits_chunk", "trainer.packing", "trainer.liger",
    "optimizer.learning_rate", "critic.optimizer.learning_rate",
)  # fmt: skip
"""Settings that a resumed run may have other values of. All others decide what is learnt; so do learning rates, but a
run that came apart can only go on with lower ones."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk: after `step` iterations, with `seconds` spent by stage until then."""

    folder: Path
    step: int
    seconds: dict[str, float]
    score: float | None = None
    """Held-out pass@1 of an evaluation after that step; None if there was none."""


class SavedPart(Protocol):
    """State that is small, and written at once into a file of its own in the folder of a checkpoint."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class SavedState:
    """State that a checkpoint holds: that of worker groups, each in a folder of its name, and small parts."""

    def __init__(self, groups: Mapping[str, Any], *parts: SavedPart) -> None:
        self._groups, self._parts = groups, parts

    def begin_save(self, folder: Path) -> None:
        """Copy the state as it is now, and begin to write it to `folder`.

        Raises HostError: the disk is full or fails.
        """
        begun = [group.begin_save(folder / name) for name, group in self._groups.items()]
        wait_for_all(begun)  # when one fails, the others write no longer either
        for each in begun:
            each.result()
        for part in self._parts:
            part.save(folder)

    def finish_save(self, wait: bool) -> bool:
        """Return whether all of it is written; with `wait`, it is when this returns.

        Raises HostError: the disk is full or fails.
        """
        calls = [group.finish_save(wait) for group in self._groups.values()]
        finished = [each.result() for each in calls]
        return all(finished)

    def load(self, folder: Path) -> None:
        """Go on from the folder of a checkpoint, on however many ranks. What is published stays as it is.

        Raises CheckpointError: it is damaged, or of a model of another shape.
        """
        for name, group in self._groups.items():
            group.load(folder / name).result()
        for part in self._parts:
            part.load(folder)


class Checkpoints:
    """The checkpoints of a run, to be entered while it lasts: at the end, what is being written is finished."""

    def __init__(
        self, parent: Path, config: TrainConfig, state: SavedState, inputs: Mapping[str, Any] | None = None
    ) -> None:
        """In the folder `parent`; `inputs` are what a run that resumes must have too, as plain JSON."""
        self._parent, self._config, self._state = parent, config, state
        self._inputs = dict(inputs or {})
        self._being_written: Checkpoint | None = None

    def begin(
        self, step: int, seconds: dict[str, float], score: float | None = None, ahead: Known | None = None
    ) -> None:
        """Copy the state after `step` iterations and begin to write it; what was begun before is finished first.

        Args:
            step: iterations that are done.
            seconds: spent by stage.
            score: held-out pass@1 of an evaluation after that step.
            ahead: batches of the next iterations, as far as they are collected.

        Raises:
            HostError: the disk is full or fails; the older checkpoints stay.
        """
        self.finish()
        for leftover in self._parent.glob(".step-*"):  # of runs that were killed
            shutil.rmtree(leftover)
        checkpoint = Checkpoint(self._parent / f"step-{step:06d}", step, seconds, score)
        with self._partial(checkpoint) as partial:
            partial.mkdir(parents=True)
            save_groups(ahead or {}, partial)
            self._state.begin_save(partial)
            description = {
                "step": step,
                "seconds": seconds,
                "score": score,
                "parts": sorted(path.name for path in partial.iterdir() if path.is_dir()),
                "inputs": self._inputs,
                "config": self._config.model_dump(mode="json"),
            }
            (partial / "state.json").write_text(json.dumps(description, indent=1), encoding="utf-8")
            self._being_written = checkpoint

    def finish(self, *, wait: bool = True) -> None:
        """Give what was begun its name, once it is written, and drop those that are not kept.

        Args:
            wait: until it is written; otherwise do nothing before it is.

        Raises:
            HostError: the disk is full or fails; the older checkpoints stay.
        """
        checkpoint, self._being_written = self._being_written, None
        if checkpoint is None:
            return
        with self._partial(checkpoint) as partial:
            if not self._state.finish_save(wait):
                self._being_written = checkpoint
                return
            make_durable(partial)
            drop_folder(checkpoint.folder)
            partial.rename(checkpoint.folder)
            sync_directory(self._parent)
        kept = {found.folder for found in kept_of(_listed(self._parent), self._config)}
        for folder in _complete(self._parent):
            if folder not in kept:
                drop_folder(folder)

    @contextmanager
    def _partial(self, checkpoint: Checkpoint) -> Generator[Path]:
        """The folder where `checkpoint` is written; it is removed if the block fails."""
        partial = checkpoint.folder.with_name(f".{checkpoint.folder.name}.partial")
        try:
            yield partial
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                is_ours = isinstance(error, HostError)
                what = error if is_ours else f"{checkpoint.folder}: cannot be written ({error.strerror})"
                raise HostError(
                    f"{what}. The older checkpoints stay. Fix: make room, and go on with --resume"
                ) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, Exception):
            with suppress(Exception):  # of the two, the first is the one to raise
                self.finish()


def kept_of(checkpoints: list[Checkpoint], config: TrainConfig) -> list[Checkpoint]:
    """Those of `checkpoints`, oldest first, that are kept: the newest, and those of the best scores."""
    newest, best = checkpoints[-config.checkpoint.keep :], by_score(checkpoints)[: config.checkpoint.keep_best]
    return [checkpoint for checkpoint in checkpoints if checkpoint in newest or checkpoint in best]


def by_score(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """Those that have a score, the best first; of equal ones, the earliest first."""
    return sorted((c for c in checkpoints if c.score is not None), key=lambda c: (-(c.score or 0.0), c.step))


def latest_checkpoint(parent: Path, config: TrainConfig, inputs: Mapping[str, Any] | None = None) -> Checkpoint | None:
    """The newest complete checkpoint, every byte of it read and found right, or None if there is none.

    Raises CheckpointError: it was made with other settings or inputs, or it is damaged.
    """
    complete = _complete(parent)
    if not complete:
        return None
    folder = complete[-1]
    try:
        checkpoint, description = _read(folder)
        _check_parts(folder, description["parts"])
    except CheckpointError as error:
        older = f"resume from {complete[-2].name}" if len(complete) > 1 else "start again: there is no older checkpoint"
        raise CheckpointError(f"{error}. Fix: move {folder} away to {older}") from None
    before = description["config"]
    if config.steps >= checkpoint.step:
        before = before | {"steps": config.steps}  # a run may be prolonged, or ended earlier
    difference = _first_difference(before, config.model_dump(mode="json")) or _first_difference(
        description["inputs"], dict(inputs or {})
    )
    if difference:
        path, was, now = difference
        raise CheckpointError(
            f"{folder}: made with {path} = {was!r:.80}, now it is {now!r:.80}; "
            "resume with the same settings and files, or start another run with --out"
        )
    return checkpoint


def drop_checkpoints(parent: Path, *, newer_than: int) -> None:
    for folder in _complete(parent):
        if int(folder.name.removeprefix("step-")) > newer_than:
            drop_folder(folder)


def policy_inputs(model: Path | Mapping[str, Any]) -> dict[str, Any]:
    """The architecture of a policy: what its configuration, or that in its folder, says of the shapes of its weights.

    Raises CheckpointError: the folder has none.
    """
    try:
        text = (model / "config.json").read_text(encoding="utf-8") if isinstance(model, Path) else json.dumps(model)
        return {"architecture": {key: value for key, value in json.loads(text).items() if key not in INCIDENTAL}}
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{model}/config.json: cannot be read ({' '.join(str(error).split())[:120]}); "
            "a run is resumed with the policy that it began with"
        ) from None


def best_checkpoint(parent: Path) -> Checkpoint | None:
    """That of the highest score, of equals the earliest; None if none has one."""
    return next(iter(by_score(_listed(parent))), None)


def weights_digest(model: Path) -> str:
    """sha256 of the weights in the folder of a policy."""
    digest = hashlib.sha256()
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def find_checkpoint(parent: Path, which: str) -> Checkpoint:
    """The checkpoint of a step (`"10"`), the `last`, or the `best`: that of the highest score, of equals the earliest.

    Raises CheckpointError: there is none, or it is damaged.
    """
    listed = _listed(parent)
    wanted = {"last": listed[-1:], "best": by_score(listed)[:1]}.get(which)
    if wanted is None:
        wanted = [found for found in listed if str(found.step) == which]
    if not wanted:
        there = ", ".join(f"{c.step}" + ("" if c.score is None else f" ({c.score:.3f})") for c in listed)
        raise CheckpointError(
            f"{parent}: no checkpoint {which!r}; there are: {there or 'none'} (in brackets: held-out pass@1)"
        )
    _check_parts(wanted[0].folder, _read(wanted[0].folder)[1]["parts"])
    return wanted[0]


def _complete(parent: Path) -> list[Path]:
    """Folders of checkpoints, oldest first."""
    return sorted(path for path in parent.glob("step-*") if (path / "state.json").is_file())


def _listed(parent: Path) -> list[Checkpoint]:
    """All checkpoints whose description can be read, oldest first."""
    found: list[Checkpoint] = []
    for folder in _complete(parent):
        with suppress(CheckpointError):
            found.append(_read(folder)[0])
    return found


def _read(folder: Path) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint, and its description with the configuration checked, or CheckpointError: it is damaged."""
    with checkpoint_data(folder / "state.json") as state:
        made_with = TrainConfig.model_validate_json(json.dumps(state["config"]))
        score = None if state["score"] is None else float(state["score"])
        checkpoint = Checkpoint(folder, int(state["step"]), dict(state["seconds"]), score)
        rest = {"inputs": dict(state["inputs"]), "parts": [str(part) for part in state["parts"]]}
        return checkpoint, rest | {"config": made_with.model_dump(mode="json")}


def _check_parts(folder: Path, parts: list[str]) -> None:
    """Read all of a checkpoint; each part is a folder with a manifest. Raises CheckpointError for a damaged file."""
    for part in parts:
        check_manifest(folder / part)


def _first_difference(was: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            inner = f"{path}.{key}" if path else key
            if inner in FREE_TO_CHANGE:
                continue
            found = _first_difference(was.get(key), now.get(key), inner)
            if found:
                return found
        return None
    return None if was == now else (path, was, now)
