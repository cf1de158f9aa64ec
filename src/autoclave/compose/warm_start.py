"""The warm start: a policy that imitates demonstrations, built or taken from the cache (whole there, or absent)."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autoclave import __version__
from autoclave.algorithms import supervised
from autoclave.compose.alignment import alignment_demonstrations
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.tasks import repair_demonstrations
from autoclave.config import TrainConfig
from autoclave.config.model_fit import require_rates_above_rounding, require_rates_within_limits
from autoclave.config.training import BUILT_IN_PROBLEMS
from autoclave.core import ConfigError, InputError
from autoclave.core.files import cache_folder, digest_of_folder, drop_folder, make_durable, sync_directory
from autoclave.core.json import canonical_json
from autoclave.models import Policy, build_tiny_policy, load_policy, resolve_device, save_model
from autoclave.problems import Demonstration, ProblemSets
from autoclave.runs.folder import MetricsLog
from autoclave.training import sft
from autoclave.training.checkpoints import Checkpoints, SavedState, latest_checkpoint, policy_inputs
from autoclave.training.metrics import Stopwatch
from autoclave.training.watchdog import StopRequest
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.sharding import check_device

Say = Callable[[str], None]


CHECKPOINTS = "warm_start"
"""Folder of the checkpoints of a warm start that is not done."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Context of a warm start: its reporter, and the folder of its checkpoints."""

    folder: Path
    """The folder of the run, or of the model; checkpoints are below, until the warm start is done."""
    say: Say
    stop: StopRequest
    stopwatch: Stopwatch
    log: MetricsLog | None = None

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS


def warm_start(config: TrainConfig, problems: ProblemSets, model: Path, around: RunContext) -> None:
    """Build or load the policy, fine-tune it on demonstrations as `config.sft` says, and write it to `model`.

    It goes on from the newest checkpoint of a warm start that was ended early.

    Raises:
        ConfigError: there is nothing to imitate.
        CheckpointError: the newest checkpoint is damaged, or of other settings or demonstrations.
        IncompleteError: a stop was requested; a checkpoint was written.
    """
    demonstrations = _demonstrations(config, problems)
    policy = _initial_policy(config, demonstrations)
    if not config.sft.is_on:
        save_model(policy, model)
        return
    sequences = sft.encode_demonstrations(policy, demonstrations)
    batches = sft.Epochs(sequences, config.sft, config.seed)
    device = resolve_device(config.model.device)
    with closing(ResourcePool("sft")) as pool:
        actor = WorkerGroup(
            pool,
            lambda: ActorWorker(
                policy,
                supervised(),
                config.sft.optimizer,
                total_steps=batches.total_steps,
                temperature=1.0,
                micro_batch_tokens=config.micro_batch_tokens,
                trainer=config.trainer,
                device=device,
            ),
        )
        inputs = policy_inputs(json.loads(policy.model.config.to_json_string())) | {
            "demonstrations": sft.digest(sequences)
        }
        _imitate(config, batches, actor, inputs, around)
        actor.export(model).result()


def _demonstrations(config: TrainConfig, problems: ProblemSets) -> list[Demonstration]:
    """All that is imitated: programs, and later turns and answers to alignment samples if settings ask for some."""
    if not _imitates(config):
        return []
    first, repairs = config.sft.demonstrations, config.sft.repair_share
    found, share = problems.demonstrations(), config.alignment.sft_share if config.alignment else 0.0
    if share:
        with build_judge(config.judge, config.sandbox) as judge:
            found += alignment_demonstrations(config, problems, judge, round(len(found) * share / (1 - share)))
    if repairs:
        with build_judge(config.judge, config.sandbox) as judge:
            found += repair_demonstrations(config, judge, round(first * repairs / (1 - repairs)))
    return found


def _imitate(
    config: TrainConfig,
    batches: sft.Epochs,
    actor: WorkerGroup[ActorWorker],
    inputs: Mapping[str, Any],
    around: RunContext,
) -> None:
    """Fine-tune to the end, from the newest checkpoint if there is one."""
    state = SavedState({"actor": actor})
    checkpoints = Checkpoints(around.checkpoints, config, state, inputs)
    found = latest_checkpoint(around.checkpoints, config, inputs)
    if found:
        around.say(f"warm start: going on after step {found.step} of {batches.total_steps}")
        around.stopwatch.seconds.update(found.seconds)
        state.load(found.folder)
    done = found.step if found else 0
    with sft.report_progress(batches.total_steps, around.log, around.say, done=done) as on_step:
        sft.fine_tune(
            actor,
            batches,
            checkpoints,
            done=done,
            every=config.sft.checkpoint_every,
            stopwatch=around.stopwatch,
            stop=around.stop,
            on_step=on_step,
        )


def _imitates(config: TrainConfig) -> bool:
    """Demonstrations are needed: for the warm start, or for the tokenizer of the embedded model."""
    return config.sft.is_on or not config.model.path


def _initial_policy(config: TrainConfig, demonstrations: Sequence[Demonstration]) -> Policy:
    model = config.model
    if model.path:
        return load_policy(model.path, dtype=model.dtype, device="cpu", chat_template=model.chat_template)
    texts = (
        f"{message['content']}\n{demonstration.response}"
        for demonstration in demonstrations
        for message in demonstration.messages
    )
    return build_tiny_policy(config.model.tiny, texts, seed=config.seed, device="cpu")


def fine_tune(
    config: TrainConfig, out: Path, *, resume: bool = False, say: Say = print, problems: ProblemSets | None = None
) -> None:
    """The warm start alone: a policy in Hugging Face form in the folder `out`.

    Args:
        resume: go on from the newest checkpoint in `out`.
        say: receives the lines a user should see.
        problems: used in place of those that the settings name; for experiments.

    Raises:
        InputError: `out` exists and is not an empty folder, or there is nothing in it to resume.
        ConfigError: there is no warm start, or its learning rate does not suit the model.
    """
    around = RunContext(out, say, StopRequest(), Stopwatch())
    is_there = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if resume and not around.checkpoints.is_dir():
        raise InputError(f"--resume: {out} holds no warm start that was ended early; start it without --resume")
    if is_there and not resume:
        hint = "; or go on with --resume" if around.checkpoints.is_dir() else ""
        raise InputError(f"--out {out}: exists already; give a new folder{hint}")
    if config.model.path and not config.sft.is_on:
        raise ConfigError("sft.steps = 0: there is nothing to train. Fix: sft.epochs=3, for example")
    require_rates_within_limits(config, warm_start_alone=True)
    require_rates_above_rounding(config, warm_start_alone=True)
    check_device(config.trainer, resolve_device(config.model.device))
    settle_libraries(config)
    problems = problems or ProblemSets(config)
    around.checkpoints.mkdir(parents=True, exist_ok=True)  # while it is there, the model is not whole
    with around.stop:
        warm_start(config, problems, out, around)
    make_durable(out)
    drop_folder(around.checkpoints)
    say(f"model: {out}")


def warm_started(config: TrainConfig, problems: ProblemSets, around: RunContext, *, fresh: bool) -> Path:
    """Folder of the warm-started policy; made if it is not in the cache, or if `fresh`."""
    decides = ("seed", "problems", "model", "sft", "micro_batch_tokens", "deterministic")
    key = {name: value for name, value in config.model_dump(mode="json").items() if name in decides}
    del key["sft"]["checkpoint_every"]
    if config.alignment and config.alignment.sft_share:
        alignment_samples = ("template", "asks", "min_informative", "limits", "sft_share", "sft_error_rate")
        key["alignment_samples"] = config.alignment.model_dump(mode="json", include=set(alignment_samples))
    if config.sft.repair_share:
        key["task"] = config.task.model_dump(mode="json")
    key |= {"version": __version__, "mixed_precision": config.trainer.mixed_precision}
    if config.problems.name not in BUILT_IN_PROBLEMS and _imitates(config):
        key["demonstrations"] = problems.demonstrations()
    if Path(config.model.path).is_dir() and config.model.path:  # what is in it now, which may have changed
        key["model_digest"] = digest_of_folder(Path(config.model.path))
    make = partial(warm_start, config, problems, around=around)
    return cached_model(key, make, fresh=fresh, say=around.say)


def cached_model(
    key: Mapping[str, Any], make: Callable[[Path], None], *, fresh: bool, say: Callable[[str], None]
) -> Path:
    """The folder of the model that `key` decides; `make(folder)` writes it if it is not there, or if `fresh`."""
    folder = cache_folder() / "sft" / hashlib.sha256(canonical_json(dict(key))).hexdigest()[:16]
    if folder.is_dir() and not fresh:
        say(f"warm start: taken from {folder}")
        return folder
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        make(partial)
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.is_dir():  # else another run made the same meanwhile, and may be reading it
            partial.rename(folder)
            sync_directory(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
