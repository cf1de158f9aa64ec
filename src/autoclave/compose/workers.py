"""Pools and worker groups of a configuration."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import autoclave.workers
from autoclave.algorithms import build_algorithm
from autoclave.compose.libraries import settle_libraries
from autoclave.config import TrainConfig
from autoclave.core import ConfigError
from autoclave.models import Policy, load_policy, load_tokenizer, require_liger, resolve_device
from autoclave.rollout import TransformersEngine
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler import SamplerWorker
from autoclave.workers.trainer import ActorWorker, NoReference, ReferenceWorker


@contextmanager
def open_pools(config: TrainConfig) -> Generator[dict[str, ResourcePool]]:
    """The resource pools of a configuration, by name; their workers end with the block.

    Raises:
        ConfigError: a worker group cannot live where the settings put it, or compute as they say.
        HostError: a pool asks for more than there is, or a package is not installed; the message names what is missing.
    """
    if config.algorithm.needs_critic:
        raise ConfigError(
            f"algorithm.name = {config.algorithm.name}: reads the values of a critic, and no worker trains "
            "one yet; choose an algorithm that needs none, as docs/algorithms/index.md lists them"
        )
    workers, actors = config.workers, config.pools[config.workers.actor].processes
    if actors > 1:
        raise ConfigError(
            f"pools.{workers.actor}.processes = {actors}: the actor is not sharded, and runs in one process; "
            "set workers.actor to a pool of one"
        )
    if workers.reference and not build_algorithm(config.algorithm).needs_reference:
        raise ConfigError(
            f"workers.reference = {workers.reference!r}: {config.algorithm.name} has no KL term here, so there is no "
            "reference; remove it"
        )
    device = resolve_device(config.model.device)
    if config.trainer.liger:
        require_liger(device)
    pools = autoclave.workers.open_pools(config.pools, devices_per_process=1 if device.type == "cuda" else 0)
    try:
        yield pools
    finally:
        for pool in pools.values():
            pool.close()


class Workers:
    """The worker groups of a configuration, with the policy of one folder on all but the reference."""

    def __init__(
        self,
        config: TrainConfig,
        model: Path,
        *,
        start: Path | None = None,
        pools: Mapping[str, ResourcePool] | None = None,
    ) -> None:
        """Start them with the policy in folder `model`; the reference is that in `start`, or the same.

        They run on `pools`, or on pools of their own.

        Raises:
            ConfigError, HostError: as `open_pools`.
            InputError: `model` is not the folder of a policy.
        """
        self._config = config
        self.algorithm = build_algorithm(config.algorithm)
        self.tokenizer = load_tokenizer(model)
        with ExitStack() as opened:
            self._start(pools or opened.enter_context(open_pools(config)), model, start or model)
            self._opened = opened.pop_all()

    def _start(self, pools: Mapping[str, ResourcePool], model: Path, start: Path) -> None:
        config, places = self._config, self._config.workers.places()
        self.actor: WorkerGroup[ActorWorker] = WorkerGroup(
            pools[places["actor"]], partial(_make_actor, config, model), name="actor"
        )
        self.reference: WorkerGroup[ReferenceWorker] | NoReference = (
            WorkerGroup(pools[places["reference"]], partial(_make_reference, config, start), name="reference")
            if self.algorithm.needs_reference
            else NoReference()
        )
        self.sampler: WorkerGroup[SamplerWorker] = WorkerGroup(
            pools[places["sampler"]], partial(_make_sampler, config, model), name="sampler"
        )

    def restart(self, model: Path) -> None:
        """Make all workers anew, with the policy in folder `model`; the reference is the one that it was."""
        restarts = [
            self.actor.restart(partial(_make_actor, self._config, model)),
            self.sampler.restart(partial(_make_sampler, self._config, model)),
        ]
        if not isinstance(self.reference, NoReference):
            restarts.append(self.reference.restart())
        for restart in restarts:
            restart.result()

    def close(self) -> None:
        """End all workers, unless that is left to whoever opened the pools."""
        self._opened.close()


# Workers are made where they run, which may be in another process: by functions that can be imported there.


def _make_actor(config: TrainConfig, model: Path) -> ActorWorker:
    return ActorWorker(
        _load(config, model),
        build_algorithm(config.algorithm),
        config.optimizer,
        total_steps=config.steps * config.minibatches,
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        trainer=config.trainer,
    )


def _make_reference(config: TrainConfig, model: Path) -> ReferenceWorker:
    return ReferenceWorker(
        _load(config, model),
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        trainer=config.trainer,
    )


def _make_sampler(config: TrainConfig, model: Path) -> SamplerWorker:
    return SamplerWorker(TransformersEngine(_load(config, model), batch_size=config.sampler.engine.batch_size))


def _load(config: TrainConfig, folder: Path) -> Policy:
    own = [pool.processes for pool in config.pools.values() if pool.executor != "inline"]
    settle_libraries(config.model, processes=sum(own) + (len(own) < len(config.pools)))
    return load_policy(folder, dtype=config.model.dtype, device=config.model.device)
