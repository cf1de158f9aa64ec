"""The warm start: a policy that imitates demonstrations, built or taken from the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from autoclave import __version__
from autoclave.algorithms import supervised
from autoclave.compose.libraries import settle_libraries
from autoclave.config import CurriculumConfig, TrainConfig
from autoclave.core import InputError
from autoclave.models import Policy, build_tiny_policy, load_policy, require_liger, resolve_device, save_policy
from autoclave.problems import Demonstration, ProblemSets
from autoclave.training import sft
from autoclave.training.interrupt import StopRequest
from autoclave.training.model_cache import cached_model
from autoclave.training.run_folder import MetricsLog
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.trainer import ActorWorker

Say = Callable[[str], None]


def warm_start(
    config: TrainConfig, problems: ProblemSets, folder: Path, log: MetricsLog | None, say: Say, stop: StopRequest
) -> None:
    """Build or load the policy, fine-tune it on demonstrations as `config.sft` says, and write it to `folder`.

    Raises:
        ConfigError: there is nothing to imitate.
        IncompleteError: a stop was requested; nothing was written.
    """
    settings = config.sft
    demonstrations = problems.demonstrations() if _imitates(config) else []
    policy = _initial_policy(config, demonstrations)
    if settings.steps:
        sequences = sft.encode_demonstrations(policy, demonstrations)
        pool = ResourcePool("sft")
        try:
            actor = WorkerGroup(
                pool,
                lambda: ActorWorker(
                    policy,
                    supervised(),
                    settings.optimizer,
                    total_steps=settings.steps,
                    temperature=1.0,
                    micro_batch_tokens=config.micro_batch_tokens,
                    trainer=config.trainer,
                ),
            )
            with sft.report_progress(settings.steps, log, say, stop) as on_step:
                sft.fine_tune(
                    actor,
                    sequences,
                    steps=settings.steps,
                    batch_size=settings.batch_size,
                    seed=config.seed,
                    on_step=on_step,
                )
        finally:
            pool.close()
    save_policy(policy, folder)


def _imitates(config: TrainConfig) -> bool:
    """Demonstrations are needed: for the warm start, or for the tokenizer of the embedded model."""
    return bool(config.sft.steps or not config.model.path)


def _initial_policy(config: TrainConfig, demonstrations: Sequence[Demonstration]) -> Policy:
    if config.model.path:
        return load_policy(config.model.path, dtype=config.model.dtype, device=config.model.device)
    texts = (
        f"{message['content']}\n{demonstration.response}"
        for demonstration in demonstrations
        for message in demonstration.messages
    )
    return build_tiny_policy(config.model.tiny, texts, seed=config.seed, device=config.model.device)


def fine_tune(config: TrainConfig, out: Path, *, say: Say = print, problems: ProblemSets | None = None) -> None:
    """The warm start alone: a policy in Hugging Face form in the folder `out`.

    `problems` are used in place of those that the settings name; for experiments.

    Raises:
        InputError: `out` exists and is not an empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: exists already; give a new folder")
    if config.trainer.liger:
        require_liger(resolve_device(config.model.device))
    settle_libraries(config.model)
    with StopRequest() as stop:
        warm_start(config, problems or ProblemSets(config), out, None, say, stop)
    say(f"model: {out}")


def warm_started(
    config: TrainConfig, problems: ProblemSets, log: MetricsLog, say: Say, stop: StopRequest, *, fresh: bool
) -> Path:
    """Folder of the warm-started policy; made if it is not in the cache, or if `fresh`."""
    decides = ("seed", "problems", "model", "sft", "micro_batch_tokens", "trainer")
    key = {name: value for name, value in config.model_dump(mode="json").items() if name in decides}
    key["version"] = __version__
    if not isinstance(config.problems, CurriculumConfig) and _imitates(config):
        key["demonstrations"] = problems.demonstrations()
    return cached_model(key, lambda folder: warm_start(config, problems, folder, log, say, stop), fresh=fresh, say=say)
