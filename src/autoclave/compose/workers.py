"""Pools and worker groups of a configuration."""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

import autoclave.workers
from autoclave.algorithms import build_algorithm
from autoclave.compose.engines import make_engine
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.models import check_tokens
from autoclave.config import PoolConfig, TrainConfig
from autoclave.core import ConfigError
from autoclave.core.files import atomic_folder
from autoclave.models import with_adapter
from autoclave.models.heads import load_critic, load_reward_model
from autoclave.models.policy import Policy, load_policy, load_tokenizer, resolve_device
from autoclave.runs.folder import RunFolder
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.memory import MemoryPeak
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.critic import CriticWorker, NoCritic
from autoclave.workers.trainer.peers import num_ranks
from autoclave.workers.trainer.reference import (
    NoReference,
    NoRewardModel,
    ReferenceWorker,
    RewardModelWorker,
    SharedReference,
)
from autoclave.workers.trainer.sharding import check_device
from autoclave.workers.weights.buffer_descriptor import Form
from autoclave.workers.weights.publisher import Publisher

W = TypeVar("W")
_NEVER_RENDERED = "{# a teacher only scores tokens, so a model without a chat template will do #}"


def open_pools(config: TrainConfig) -> AbstractContextManager[dict[str, ResourcePool]]:
    """The resource pools of a configuration, by name; their workers end with the block.

    Raises:
        ConfigError: a worker group cannot live where the settings put it, or compute as they say.
        HostError: a pool asks for more than there is, or a package is not installed; the message names what is missing.
    """
    settings = {
        "workers.reference": config.workers.reference,
        "trainer.reference_sharding": config.trainer.reference_sharding,
        "teacher.path": config.teacher.path,
    }
    if any(settings.values()) and not build_algorithm(config.algorithm).needs_reference:
        name, value = next((name, value) for name, value in settings.items() if value)
        raise ConfigError(
            f"{name} = {value!r}: {config.algorithm.label} has no KL term here, so there is no reference; remove it"
        )
    device = resolve_device(config.model.device)
    check_device(config.trainer, device)
    return autoclave.workers.open_pools(pools_of(config), devices_per_process=1 if device.type == "cuda" else 0)


class Workers:
    """The worker groups of a configuration, with the policy of one folder."""

    def __init__(
        self,
        config: TrainConfig,
        model: Path,
        *,
        pools: Mapping[str, ResourcePool] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start them with the policy in folder `model`, and a critic that has learnt nothing here yet.

        They run on `pools`, or on pools of their own. `say` hears of samplers that died.

        Raises ConfigError, HostError: as `open_pools`. InputError: `model` is not the folder of a policy.
        """
        self._config, self._say = config, say
        self.algorithm = build_algorithm(config.algorithm)
        self.tokenizer = load_tokenizer(model)
        check_tokens(config, self.tokenizer)
        with ExitStack() as opened:
            self._start(pools or opened.enter_context(open_pools(config)), model)
            self._opened = opened.pop_all()

    def _start(self, pools: Mapping[str, ResourcePool], model: Path) -> None:
        config, places = self._config, self._config.workers.places()
        self.actor: WorkerGroup[ActorWorker] = _sharded(
            pools[places["actor"]], partial(make_actor, config, model), "actor"
        )
        self.reference = self._choose_reference(pools[places["reference"]], model)
        self.critic: WorkerGroup[CriticWorker] | NoCritic = (
            _sharded(pools[places["critic"]], partial(_make_critic, config, config.critic.path or model), "critic")
            if self.algorithm.needs_critic
            else NoCritic()
        )
        self.reward_model: WorkerGroup[RewardModelWorker] | NoRewardModel = (
            WorkerGroup(pools[places["reward_model"]], partial(_make_reward_model, config), name="reward_model")
            if config.reward_model.path
            else NoRewardModel()
        )
        self.sampler = _open_samplers(config, pools, model, self._say)
        self.publisher = Publisher(
            self.actor,
            _form(config),
            deadline_s=config.publish.timeout_s,
            may_alias=config.schedule.is_time_shared,
            verifies=config.publish.sync_check is not None,
        )

    def _choose_reference(
        self, pool: ResourcePool, model: Path
    ) -> WorkerGroup[ReferenceWorker] | SharedReference | NoReference:
        if not self.algorithm.needs_reference:
            return NoReference()
        teacher = self._config.teacher.path
        if self._config.trainer.lora and not teacher:
            return SharedReference(self.actor)
        return _sharded(pool, partial(_make_reference, self._config, teacher or model), "reference")

    @property
    def groups(self) -> dict[str, WorkerGroup[Any]]:
        parts = (self.actor, self.reference, self.critic, self.reward_model, *self.sampler.groups)
        return {part.name: part for part in parts if isinstance(part, WorkerGroup)}

    def peak_memory(self) -> dict[str, list[MemoryPeak]]:
        return {name: group.peak_memory().result() for name, group in self.groups.items()}

    def export(self, run: RunFolder) -> None:
        """Write the models that learnt to the folder of their run, in Hugging Face form; each is whole or absent there.

        Raises HostError: the disk is full or fails.
        """
        learnt: dict[Path, Any] = {run.model: self.actor, run.critic: self.groups.get("critic")}
        for folder, group in learnt.items():
            if group:
                with atomic_folder(folder) as written:
                    group.export(written).result()

    def restart(self) -> None:
        """Restart all workers, with the models that they started with."""
        others = [group for group in self.groups.values() if group not in self.sampler.groups]
        for restart in [group.restart() for group in others]:
            restart.result()
        self.sampler.restart()

    def close(self) -> None:
        """End all workers, unless the caller that opened the pools does so."""
        self.sampler.close()
        self._opened.close()


def _form(config: TrainConfig) -> Form:
    dtype = getattr(torch, config.publish.dtype) if config.publish.dtype else None
    return Form(dtype, adapter_only=config.publishes_adapter)


def _sharded(pool: ResourcePool, make_worker: Callable[[], W], name: str) -> WorkerGroup[W]:
    """A group whose ranks hold one model together."""
    return WorkerGroup(pool, make_worker, name=name, process_group=pool.executor.processes > 1)


def _open_samplers(
    config: TrainConfig, pools: Mapping[str, ResourcePool], model: Path, say: Callable[[str], None]
) -> SamplerPool:
    """One group for each pool that is theirs; see `pools_of`."""
    homes = [pool for name, pool in pools.items() if name.partition("/")[0] == config.workers.sampler]
    groups: list[WorkerGroup[SamplerWorker]] = [
        WorkerGroup(pool, partial(_make_sampler, config, model), name=f"sampler-{number}" if homes[1:] else "sampler")
        for number, pool in enumerate(homes)
    ]
    return SamplerPool(
        groups,
        in_flight=_most_in_flight(config) if config.schedule.mixes_batches else None,
        restarts=config.sampler.restarts,
        timeout_s=config.sampler.timeout_s,
        say=say,
    )


def _most_in_flight(config: TrainConfig) -> int:
    """Requests of an engine at a time, with room left for a probe, which would wait for the end of another."""
    sync_check = config.publish.sync_check
    return max(1, config.sampler.engine.batch_size - (sync_check.prompts if sync_check else 0))


def pools_of(config: TrainConfig) -> dict[str, PoolConfig]:
    """The pools to open, by name. Processes that only sample are replicas, and each is a pool of its own: `NAME/0`."""
    homes = config.workers.places()
    shared = {pool for group, pool in homes.items() if group != "sampler"}
    opened: dict[str, PoolConfig] = {}
    for name, pool in config.pools.items():
        opened |= {name: pool} if name in shared else _replicas(config, name)
    return opened


def _replicas(config: TrainConfig, name: str) -> dict[str, PoolConfig]:
    """A pool for each process of the pool `name`, with the GPUs of an engine each."""
    pool = config.pools[name]
    if resolve_device(config.model.device).type == "cuda" and pool.executor != "inline":
        pool = pool.model_copy(update={"devices_per_process": config.devices_per_process(name)})
    if pool.processes == 1:
        return {name: pool}
    alone = pool.model_copy(update={"processes": 1})
    return {f"{name}/{number}": alone for number in range(pool.processes)}


@contextmanager
def open_samplers(config: TrainConfig, model: Path, say: Callable[[str], None] = print) -> Generator[SamplerPool]:
    """The samplers of a configuration and nothing else, with the policy in folder `model`.

    Raises HostError: their pool asks for more than there is, or a package is not installed. InputError: `model` is not
    the folder of a policy.
    """
    publish = config.publish.model_copy(update={"content": "weights"})  # none come, so no adapter either
    config, home = config.model_copy(update={"publish": publish}), config.workers.sampler
    devices = 1 if resolve_device(config.model.device).type == "cuda" else 0
    with (
        autoclave.workers.open_pools(_replicas(config, home), devices_per_process=devices) as pools,
        closing(_open_samplers(config, pools, model, say)) as samplers,
    ):
        yield samplers


# Workers are made where they run, which may be in another process: by functions that can be imported there.


def make_actor(config: TrainConfig, model: Path) -> ActorWorker:
    """The actor with the policy in folder `model`, and an adapter that has learnt nothing if one is to learn."""
    policy = _load(config, model, device="cpu")
    if config.trainer.lora:
        with_adapter(policy.model, config.trainer.lora, seed=config.seed)
    return ActorWorker(
        policy,
        build_algorithm(config.algorithm),
        config.optimizer,
        total_steps=config.steps * config.minibatches,
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        trainer=config.trainer,
        device=resolve_device(config.model.device),
        learns_in_parts=config.schedule.learns_in_parts,
    )


def _make_reference(config: TrainConfig, model: str | Path) -> ReferenceWorker:
    return ReferenceWorker(
        _load(config, model, device="cpu", chat_template=_NEVER_RENDERED),
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
        trainer=config.trainer.of("reference"),
        device=resolve_device(config.model.device),
    )


def _make_critic(config: TrainConfig, model: str | Path) -> CriticWorker:
    _share_cores(config)
    critic = load_critic(model, dtype=config.model.dtype, device="cpu", in_parts=num_ranks() > 1)
    if config.trainer.lora:
        with_adapter(critic.trunk, config.trainer.lora, seed=config.seed)
    return CriticWorker(
        critic,
        build_algorithm(config.algorithm),
        config.critic.optimizer,
        total_steps=config.steps * config.minibatches,
        micro_batch_tokens=config.micro_batch_tokens,
        trainer=config.trainer.of("critic"),
        device=resolve_device(config.model.device),
    )


def _make_reward_model(config: TrainConfig) -> RewardModelWorker:
    _share_cores(config)
    return RewardModelWorker(
        load_reward_model(config.reward_model.path, dtype=config.model.dtype, device=config.model.device),
        weight=config.reward_model.weight,
        micro_batch_tokens=config.micro_batch_tokens,
    )


def _make_sampler(config: TrainConfig, model: Path) -> SamplerWorker:
    _share_cores(config)
    return SamplerWorker(make_engine(config, model), resolve_device(config.model.device))


def _load(config: TrainConfig, folder: str | Path, *, device: str, chat_template: str = "") -> Policy:
    _share_cores(config)
    in_parts = num_ranks() > 1
    return load_policy(folder, dtype=config.model.dtype, device=device, chat_template=chat_template, in_parts=in_parts)


def _share_cores(config: TrainConfig) -> None:
    own = [pool.processes for pool in config.pools.values() if pool.executor != "inline"]
    settle_libraries(config, processes=sum(own) + (len(own) < len(config.pools)))
