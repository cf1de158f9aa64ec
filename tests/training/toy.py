"""A task that is learnt in seconds: begin the response with a character of even code. Real workers, no judge."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from autoclave.algorithms import build_algorithm
from autoclave.config import GrpoPlusConfig, LengthScheduleConfig, LoraConfig, OptimizerConfig, ScheduleConfig
from autoclave.core import Reward, TaskItem
from autoclave.models import HeadModel, Policy, with_adapter
from autoclave.rollout import Engine, NextTurn, SamplingParameters, by_last_turn
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.training.stages import Stages
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.critic import CriticWorker, NoCritic
from autoclave.workers.trainer.reference import (
    NoReference,
    NoRewardModel,
    ReferenceWorker,
    RewardModelWorker,
    SharedReference,
)
from autoclave.workers.weights.buffer_descriptor import AS_TRAINED, Form
from autoclave.workers.weights.publisher import Publisher
from autoclave.workers.weights.sync_check import SyncCheck
from tests.training_parts import earned, item, settled, tiny_critic, tiny_policy

ITEMS = [item(name) for name in ("one", "two", "three", "four")]
RewardRule = Callable[[str], float | None]


def is_even(response: str) -> float:
    """1 if the response begins with a character of even code."""
    return float(bool(response) and ord(response[0]) % 2 == 0)


@contextmanager
def toy_stages(
    rule: RewardRule = is_even,
    *,
    load: Callable[[], Policy] = tiny_policy,
    start: Callable[[], Policy] = tiny_policy,
    goes_on_from: Path | None = None,
    begins_at: int = 0,
    engine: Callable[[Policy], Engine] = lambda policy: TransformersEngine(policy, batch_size=64),
    sync_check: SyncCheck | None = None,
    samplers: int = 1,
    form: Form = AS_TRAINED,
    load_critic: Callable[[], HeadModel] = tiny_critic,
    reward_model: Callable[[], HeadModel] | None = None,
    algorithm: object = GrpoPlusConfig(mask_overlong=False),
    steps: int = 20,
    group_size: int = 8,
    learning_rate: float = 1e-2,
    lora: LoraConfig | None = None,
    shares_reference: bool = False,
    schedule: ScheduleConfig | None = None,
    length_schedule: LengthScheduleConfig | None = None,
    next_turn: NextTurn | None = None,
) -> Generator[Stages]:
    """Stages with the policy that `load` gives, and that of `start` as reference; or with that of a checkpoint.

    What is sampled first is stamped `begins_at`.

    The critic has a pool of its own, and a reward model, if there is one, that of the first sampler. With `lora` an
    adapter learns; the reference can then be the actor without it.
    """
    chosen = build_algorithm(algorithm)
    in_parts = schedule is not None and schedule.learns_in_parts
    scoring = {"temperature": 1.0, "micro_batch_tokens": 1 << 16}
    optimizer = OptimizerConfig(learning_rate=learning_rate)

    def reward(asked: TaskItem, response: str) -> Future[Reward]:
        return settled(earned(rule(response)))

    def learner() -> Policy:
        policy = load()
        if lora:
            with_adapter(policy.model, lora, seed=0)
        return policy

    def reference() -> WorkerGroup[ReferenceWorker] | SharedReference | NoReference:
        if not chosen.needs_reference:
            return NoReference()
        return (
            SharedReference(actor)
            if shares_reference
            else WorkerGroup(pools[0], lambda: ReferenceWorker(start(), **scoring))
        )

    def critic() -> CriticWorker:
        return CriticWorker(load_critic(), chosen, optimizer, total_steps=2 * steps, micro_batch_tokens=1 << 16)

    homes = [ResourcePool("sampler"), *(ResourcePool(f"sampler-{number}") for number in range(1, samplers))]
    pools = ResourcePool("actor"), homes[0], ResourcePool("critic"), *homes[1:]
    try:
        actor = WorkerGroup(
            pools[0],
            lambda: ActorWorker(
                learner(),
                chosen,
                optimizer,
                total_steps=2 * steps,
                learns_in_parts=in_parts,
                **scoring,
            ),
        )
        stages = Stages(
            actor=actor,
            reference=reference(),
            critic=WorkerGroup(pools[2], critic) if chosen.needs_critic else NoCritic(),
            reward_model=WorkerGroup(
                pools[1], lambda: RewardModelWorker(reward_model(), weight=1.0, micro_batch_tokens=64)
            )
            if reward_model
            else NoRewardModel(),
            publisher=Publisher(actor, form, deadline_s=60),
            sync_check=sync_check,
            sampler=SamplerPool([WorkerGroup(home, lambda: SamplerWorker(engine(load()))) for home in homes]),
            tokenizer=tiny_policy().tokenizer,
            grade=by_last_turn(reward),
            algorithm=chosen,
            sampling=SamplingParameters(max_new_tokens=3),
            group_size=group_size,
            minibatches=1 if in_parts else 2,
            seed=0,
            length_schedule_config=length_schedule,
            next_turn=next_turn,
        )
        if goes_on_from:
            stages.saved().load(goes_on_from)
        stages.begin(begins_at)
        yield stages
    finally:
        for pool in pools:
            pool.close()
