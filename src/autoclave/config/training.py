"""Settings of a training run: warm start, optimisation, schedule, evaluation, and the root object of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autoclave.config.algorithm import GrpoPlusConfig
from autoclave.config.algorithm_choice import AlgorithmConfig
from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, Positive, PositiveFloat, Seed
from autoclave.config.health import HealthConfig
from autoclave.config.model import ModelConfig, SamplerConfig
from autoclave.config.problems import CurriculumConfig, ProblemsConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.config.task import TaskConfig
from autoclave.config.trainer import TrainerConfig
from autoclave.config.workers import PoolConfig, WorkersConfig
from autoclave.core.json import nearest


class OptimizerConfig(Config):
    """AdamW and the course of its learning rate."""

    learning_rate: PositiveFloat = 4e-4
    """Peak learning rate."""

    warmup_steps: NonNegative = 0
    """Optimizer steps of linear rise to the peak."""

    decay: Literal["none", "linear", "cosine"] = "linear"
    """Fall from the peak to `final_fraction` of it at the last step."""

    final_fraction: Fraction = 0.0
    """Learning rate at the end, as a share of the peak."""

    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """Decay rates of the two moments."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""

    gradient_clip: PositiveFloat = 1.0
    """Largest norm of the gradient over all parameters."""


class SftConfig(Config):
    """Warm start: supervised fine-tuning on demonstrations."""

    steps: NonNegative = 1200
    """Optimizer steps; 0 means no warm start."""

    batch_size: Positive = 64
    """Demonstrations per step."""

    demonstrations: Positive = 20000
    """Demonstrations generated for the built-in curriculum."""

    error_rate: Fraction = 0.1
    """Built-in curriculum: chance that the teacher writes one operation of a program wrongly."""

    misunderstood_share: Fraction = 0.3
    """Built-in curriculum: share of the operations that the teacher misunderstands."""

    misunderstood_error_rate: Fraction = 0.5
    """Built-in curriculum: chance of a mistake in a misunderstood operation."""

    optimizer: OptimizerConfig = OptimizerConfig(
        learning_rate=3e-3, warmup_steps=50, decay="cosine", final_fraction=0.1, weight_decay=0.01
    )
    """Optimisation of the warm start."""


class SynchronousConfig(Config):
    """Sample, judge, learn, publish, one after the other."""

    name: Literal["synchronous"] = "synchronous"
    """The schedule."""


ScheduleConfig = Annotated[SynchronousConfig, Field(discriminator="name")]


class EvaluationConfig(Config):
    """Evaluation on held-out problems."""

    every: NonNegative = 10
    """Steps between evaluations during training; 0 means only before and after."""

    samples: Positive = 4
    """Responses per problem at temperature 1 for an evaluation during training."""

    final_samples: Positive = 8
    """Responses per problem at temperature 1 before and after training; also the k of the pass@k reported."""

    problems: NonNegative = 100
    """Held-out problems for an evaluation during training; 0 means all. Before and after, all are used."""


class CheckpointConfig(Config):
    """When the state of a run is saved, and how much of it is kept."""

    every: Positive = 10
    """Steps between checkpoints; one is also taken at the end and on Ctrl-C."""

    keep: Positive = 2
    """Newest checkpoints kept."""


class TrainConfig(Config):
    """A reinforcement-learning run, whole."""

    name: str = "run"
    """Name of the run; its folder is `runs/<name>` unless --out is given."""

    seed: Seed = 0
    """Seed of initial weights, order of problems and sampling."""

    deterministic: bool = False
    """Equal runs give equal bits on a GPU too: only operations of the tensor library that repeat to the last bit; one
    that cannot ends the run. Slower. On the CPU runs are equal anyway."""

    steps: Positive = 50
    """Steps of reinforcement learning."""

    problems_per_step: Positive = 64
    """Problems asked per step."""

    group_size: Positive = 8
    """Responses sampled per problem; they are compared with each other."""

    minibatches: Positive = 2
    """Optimizer steps per step; each sees whole groups."""

    micro_batch_tokens: Positive = 16384
    """Most tokens, padding included, in one forward and backward pass; bounds memory, changes no result."""

    no_verdict_limit: Fraction = 0.1
    """Largest share of rollouts of a step without a verdict; above it the run stops."""

    problems: ProblemsConfig = CurriculumConfig()
    """What is learnt from, and what is held out."""

    model: ModelConfig = ModelConfig()
    """The policy."""

    sft: SftConfig = SftConfig()
    """The warm start."""

    task: TaskConfig = TaskConfig()
    """Prompts and rewards."""

    sampler: SamplerConfig = SamplerConfig()
    """Sampling."""

    algorithm: AlgorithmConfig = GrpoPlusConfig()
    """What is learnt from rewards, and how."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimisation of the policy."""

    trainer: TrainerConfig = TrainerConfig()
    """How the models that learn are held and computed."""

    schedule: ScheduleConfig = SynchronousConfig()
    """When sampling, learning and publishing happen."""

    pools: dict[str, PoolConfig] = {"main": PoolConfig()}
    """Resource pools, by name; they do not overlap."""

    workers: WorkersConfig = WorkersConfig()
    """Worker groups on the pools."""

    worker_restarts: NonNegative = 0
    """How often a run goes on from its newest checkpoint by itself after the process of a worker died; after that, and
    if it is 0, the run stops."""

    judge: JudgeConfig = JudgeConfig()
    """Judging."""

    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation."""

    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""

    health: HealthConfig = HealthConfig()
    """Alerts."""

    loggers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Services that get the metrics too, beside metrics.jsonl and TensorBoard; their own environment variables say
    where they are."""

    @model_validator(mode="after")
    def _loggers_differ(self) -> Self:
        if twice := {name for name in self.loggers if self.loggers.count(name) > 1}:
            raise ValueError(f"loggers: {min(twice)} is given twice; give it once")
        return self

    @model_validator(mode="after")
    def _group_can_be_compared(self) -> Self:
        if self.algorithm.compares_group and self.group_size < 2:
            raise ValueError(
                f"group_size = {self.group_size}: {self.algorithm.name} compares rollouts of one problem, "
                "so it needs at least 2; algorithm.name=reinforce_plus_plus needs 1"
            )
        return self

    @model_validator(mode="after")
    def _correction_knows_the_sampler(self) -> Self:
        if self.sampler.top_p < 1 and self.algorithm.correction.name != "none":
            raise ValueError(
                f"algorithm.correction.name = {self.algorithm.correction.name}: with sampler.top_p = "
                f"{self.sampler.top_p} tokens are not sampled with the probabilities that the trainer computes; "
                "use sampler.top_p=1 or algorithm.correction.name=none"
            )
        return self

    @model_validator(mode="after")
    def _minibatches_hold_groups(self) -> Self:
        if self.problems_per_step % self.minibatches:
            raise ValueError(
                f"minibatches = {self.minibatches}: must divide problems_per_step = {self.problems_per_step}, "
                "because each minibatch holds whole groups"
            )
        return self

    @model_validator(mode="after")
    def _every_group_has_a_pool(self) -> Self:
        places = self.workers.places()
        for group, pool in places.items():
            if pool not in self.pools:
                raise ValueError(f'workers.{group} = "{pool}": no such pool; {nearest(pool, list(self.pools))}')
        for pool in self.pools:
            if pool not in places.values():
                raise ValueError(f"pools.{pool}: no worker group lives on it; remove it, or set workers.actor={pool}")
        return self

    @model_validator(mode="after")
    def _every_rank_has_rollouts(self) -> Self:
        sampled = self.problems_per_step * self.group_size
        in_minibatch = sampled // self.minibatches, "minibatch", "problems_per_step x group_size / minibatches"
        shares = {"sampler": (sampled, "step", "problems_per_step x group_size")}
        for group, pool in self.workers.places().items():
            ranks, (rollouts, share, formula) = self.pools[pool].processes, shares.get(group, in_minibatch)
            if ranks > rollouts:
                raise ValueError(
                    f"pools.{pool}.processes = {ranks}: a {share} has {rollouts} rollouts ({formula}), less than one "
                    f"for each process of the {group}; lower processes or raise problems_per_step"
                )
        return self

    @model_validator(mode="after")
    def _reference_has_weights_of_its_own(self) -> Self:
        if self.trainer.lora and self.workers.reference:
            raise ValueError(
                f"workers.reference = {self.workers.reference!r}: with trainer.lora the actor without its adapter is "
                "the reference, so there is no worker to place; remove it"
            )
        return self

    @model_validator(mode="after")
    def _window_fits_context(self) -> Self:
        if not self.model.path and self.sampler.max_new_tokens >= self.model.tiny.context:
            raise ValueError(
                f"sampler.max_new_tokens = {self.sampler.max_new_tokens}: must be below "
                f"model.tiny.context = {self.model.tiny.context}"
            )
        return self
