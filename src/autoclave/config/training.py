"""Settings of a training run: warm start, optimisation, schedule, evaluation, and the root object of a recipe."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from autoclave.config.algorithm import GrpoPlusConfig
from autoclave.config.alignment import AlignmentConfig
from autoclave.config.base import Config, Fraction, NonNegative, Positive, Seed
from autoclave.config.choices import AlgorithmConfig, ProblemsConfig, TaskConfig
from autoclave.config.engine import RemoteEngineSettings, VllmEngineConfig
from autoclave.config.health import HealthConfig
from autoclave.config.model import ModelConfig, SamplerConfig
from autoclave.config.model_size import defaults_by_size
from autoclave.config.problems import SyntheticConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig, unused_isolation
from autoclave.config.schedule import LengthScheduleConfig, MinibatchPipelineConfig, ScheduleConfig, SynchronousConfig
from autoclave.config.task import CodeGenerationConfig
from autoclave.config.trainer import CriticConfig, OptimizerConfig, RewardModelConfig, TeacherConfig, TrainerConfig
from autoclave.config.workers import PoolConfig, PublishConfig, WorkersConfig
from autoclave.core.json import nearest


class SftConfig(Config):
    """Warm start: supervised fine-tuning on demonstrations."""

    steps: NonNegative | None = None
    """Optimizer steps; 0 means no warm start. 1200 where neither this nor `epochs` is given."""
    epochs: Positive | None = None
    """Passes over all demonstrations, in place of `steps`."""
    batch_size: Positive | None = None
    """Demonstrations per step. 64 where neither this nor `batch_tokens` is given."""
    batch_tokens: Positive | None = None
    """Most tokens per step, prompts included, in place of `batch_size`: each step gets as many demonstrations as fit. A
    longer one stands alone."""
    checkpoint_every: NonNegative = 200
    """Steps between checkpoints of the warm start; one is also taken on Ctrl-C; 0 means only then."""
    demonstrations: Positive = 20000
    """Demonstrations generated for built-in problems."""
    error_rate: Fraction = 0.1
    """Built-in problems: chance that the teacher gets one operation of a program or calculation wrong."""
    misunderstood_share: Fraction = 0.3
    """Built-in problems: share of the operations that the teacher misunderstands."""
    misunderstood_error_rate: Fraction = 0.5
    """Built-in problems: chance of a mistake in a misunderstood operation."""
    repair_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the demonstrations that are later turns, after what earlier attempts failed: with `task.turns` above 1,
    on `synthetic` problems."""
    optimizer: OptimizerConfig = OptimizerConfig(
        learning_rate=3e-3, warmup_steps=50, decay="cosine", final_fraction=0.1, weight_decay=0.01
    )
    """Optimisation of the warm start."""

    def broken_rules(self) -> Iterator[str]:
        for one, other in (("steps", "epochs"), ("batch_size", "batch_tokens")):
            values = getattr(self, one), getattr(self, other)
            if None not in values:
                yield (
                    f"{one} = {values[0]} and {other} = {values[1]} are two ways to say the same thing; "
                    "give one of them, and null for the other where a recipe has it"
                )

    @property
    def is_on(self) -> bool:
        """True if there is a warm start."""
        return self.steps != 0

    @property
    def rows_per_step(self) -> int:
        """Demonstrations per step, where tokens do not decide it."""
        return self.batch_size or 64

    def total_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the warm start."""
        if self.epochs:
            return self.epochs * steps_per_epoch
        return 1200 if self.steps is None else self.steps


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
    max_new_tokens: Positive | None = None
    """Most tokens of a response; by default as in training, where `length_schedule` has stages as in the last. More
    shows what the policy does beyond the length that it was trained at."""


class CheckpointConfig(Config):
    """Checkpoints: interval and number kept."""

    every: Positive = 10
    """Steps between checkpoints; one is also taken at the end and on Ctrl-C."""
    keep: Positive = 2
    """Newest checkpoints kept."""
    keep_best: NonNegative = 1
    """Checkpoints kept besides: those of the highest held-out pass@1, of equal ones the earliest. Only a checkpoint at
    a step of an evaluation has one; it is over the `evaluation.problems` of every evaluation."""


BUILT_IN_PROBLEMS = {"synthetic": "code_generation", "functions": "code_generation", "arithmetic": "mathematics"}
"""The task of each source of generated problems."""
SHARDED = ("actor", "critic", "reference")
"""Worker groups whose processes hold one model together."""


class TrainConfig(Config):
    """A reinforcement-learning run."""

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
    """Problems (prompts) per step."""
    group_size: Positive = 8
    """Responses sampled per problem (a group)."""
    minibatches: Positive = 2
    """Optimizer steps per step; each sees whole groups."""
    micro_batch_tokens: Positive = 16384
    """Most tokens, padding included, in one forward and backward pass; bounds memory, changes no result."""
    no_verdict_limit: Fraction = 0.1
    """Largest share of rollouts of a step without a verdict; above it the run stops."""
    problems: ProblemsConfig = SyntheticConfig()
    """Problems to train on and to hold out."""
    model: ModelConfig = ModelConfig()
    """The policy."""
    sft: SftConfig = SftConfig()
    """The warm start."""
    task: TaskConfig = CodeGenerationConfig()
    """Prompts and rewards."""
    sampler: SamplerConfig = SamplerConfig()
    """Sampling."""
    length_schedule: LengthScheduleConfig | None = None
    """Context lengthening: stages with more and more tokens of a response; null: always `sampler.max_new_tokens`."""
    alignment: AlignmentConfig | None = None
    """Execution-semantics alignment: prompts that ask for final values of variables; null: none."""
    algorithm: AlgorithmConfig = GrpoPlusConfig()
    """Algorithm."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimisation of the policy."""
    critic: CriticConfig = CriticConfig()
    """The critic of algorithms that have one."""
    reward_model: RewardModelConfig = RewardModelConfig()
    """Reward model, whose scores are added to rewards."""
    teacher: TeacherConfig = TeacherConfig()
    """Teacher of on-policy distillation, for `algorithm.advantage=distillation` or a KL term of the algorithm."""
    trainer: TrainerConfig = TrainerConfig()
    """Sharding and precision of the models that train."""
    schedule: ScheduleConfig = SynchronousConfig()
    """Schedule of sampling, learning and publishing."""
    publish: PublishConfig = PublishConfig()
    """New weights for the samplers."""
    pools: dict[str, PoolConfig] = {"main": PoolConfig()}
    """Resource pools, by name; they do not overlap."""
    workers: WorkersConfig = WorkersConfig()
    """Worker groups on the pools."""
    watchdog_s: NonNegative = 1800
    """A run in which nothing was sampled, judged, learnt or written for so many seconds ends with an error and a file
    that says what everybody was doing. 0: never. Longer than the longest single update."""
    worker_restarts: NonNegative = 0
    """Number of times that a run resumes by itself from its newest checkpoint after the process of a worker died; after
    that, and if it is 0, the run stops."""
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

    @classmethod
    def dependent_defaults(cls, tree: Mapping[str, Any], stated: Collection[str]) -> Mapping[str, Any]:
        """See `Config`: those that follow from the size of the model."""
        return defaults_by_size(tree, stated)

    def broken_rules(self) -> Iterator[str]:
        yield from self._broken_by_task()
        yield from self._broken_by_trainer()
        yield from self._broken_by_sampler()
        yield from self._broken_by_placement()
        yield from self._broken_by_lengths()
        yield from self._broken_by_alignment()
        earliest = self.length_schedule.fewest_steps if self.length_schedule else 0
        if earliest >= self.steps:
            yield (
                f"steps = {self.steps}: the last of length_schedule.stages begins after {earliest} steps at least; "
                "raise steps, lower those of length_schedule.advance, or have fewer stages"
            )

    def _broken_by_task(self) -> Iterator[str]:
        if twice := {name for name in self.loggers if self.loggers.count(name) > 1}:
            yield f"loggers: {min(twice)} is given twice; give it once"
        yield from unused_isolation(self.judge, self.sandbox)
        task = BUILT_IN_PROBLEMS.get(self.problems.name)
        if task and (task == "mathematics") != self.task.asks_for_answers:
            yield (
                f"problems.name = {self.problems.name}: makes problems for task.name={task} only, and task.name = "
                f"{self.task.name}; set task.name={task}, problems.name="
                f"{'arithmetic' if self.task.asks_for_answers else 'synthetic'}, or problems.name=files with train and "
                "heldout"
            )
        if self.sft.repair_share and (getattr(self.task, "turns", 1) == 1 or self.problems.name != "synthetic"):
            yield f"sft.repair_share = {self.sft.repair_share}: needs task.turns above 1 and problems.name=synthetic"
        if self.algorithm.mask_turn_limit and (self.most_turns == 1 or self.task.name == "code_generation"):
            yield (
                "algorithm.mask_turn_limit: needs task.turns above 1, and a task whose policy ends its episodes, which "
                "code_generation does not have; remove it"
            )
        if self.algorithm.compares_group and self.group_size < 2:
            yield (
                f"group_size = {self.group_size}: {self.algorithm.label} compares rollouts of one problem, "
                "so it needs at least 2; algorithm.name=reinforce_plus_plus needs 1"
            )
        if self.sampler.top_p < 1 and self.algorithm.correction.name != "none":
            yield (
                f"algorithm.correction.name = {self.algorithm.correction.name}: with sampler.top_p = "
                f"{self.sampler.top_p} tokens are not sampled with the probabilities that the trainer computes; "
                "use sampler.top_p=1 or algorithm.correction.name=none"
            )
        if self.problems_per_step % self.minibatches:
            yield (
                f"minibatches = {self.minibatches}: must divide problems_per_step = {self.problems_per_step}, "
                "because each minibatch holds whole groups"
            )
        one = "algorithm.advantage=gae" if getattr(self.algorithm, "advantage", None) else "algorithm.name=ppo"
        needless = f"{self.algorithm.label} has no critic; choose {one}, or remove it"
        if not self.algorithm.needs_critic and self.critic != CriticConfig():
            yield f"critic is ignored: {needless}"
        if not self.algorithm.needs_critic and self.workers.critic:
            yield f'workers.critic = "{self.workers.critic}": {needless}'
        if not self.reward_model.path and self.workers.reward_model:
            yield (
                f'workers.reward_model = "{self.workers.reward_model}": there is no reward model; set '
                "reward_model.path, or remove it"
            )
        if getattr(getattr(self.algorithm, "advantage", None), "name", "") == "distillation":
            if not self.teacher.path:
                yield "algorithm.advantage.name = distillation: there is no teacher; set teacher.path"
            if resamples := getattr(self.algorithm, "max_resamples", 0):
                yield (
                    f"algorithm.max_resamples = {resamples}: distillation has a signal in groups of equal rewards too; "
                    "set it to 0"
                )
        places = self.workers.places()
        for group, pool in places.items():
            if pool not in self.pools:
                yield f'workers.{group} = "{pool}": no such pool; {nearest(pool, list(self.pools))}'
        for pool in self.pools:
            if pool not in places.values():
                yield f"pools.{pool}: no worker group lives on it; remove it, or set workers.actor={pool}"

    def _broken_by_trainer(self) -> Iterator[str]:
        trainer, homes = self.trainer, self.workers.places()
        spread = [pool for group, pool in homes.items() if group in SHARDED and self.pools[pool].processes > 1]
        if trainer.sharding != "zero3" and not spread:
            yield (
                f"trainer.sharding = {trainer.sharding}: is ignored, because every model that learns has one process; "
                f"remove it, or set pools.{self.workers.actor}.processes"
            )
        for group, own in (("critic", trainer.critic_sharding), ("reference", trainer.reference_sharding)):
            if own and homes[group] not in spread:
                yield (
                    f"trainer.{group}_sharding = {own}: is ignored, because the {group} has one process; remove it, or "
                    f"set pools.{homes[group]}.processes"
                )
        if trainer.critic_sharding and not self.algorithm.needs_critic:
            yield (
                f"trainer.critic_sharding = {trainer.critic_sharding}: {self.algorithm.label} has no critic; remove it"
            )
        for pool in spread:
            if self.pools[pool].processes % trainer.parts(self.pools[pool].processes):
                yield (
                    f"trainer.shard_size = {trainer.shard_size}: must divide pools.{pool}.processes = "
                    f"{self.pools[pool].processes}"
                )
        if trainer.shard_size and not spread:
            yield (
                f"trainer.shard_size = {trainer.shard_size}: is ignored, because every model that learns has one "
                "process; remove it"
            )
        if trainer.mixed_precision == "bfloat16" and self.model.dtype != "float32":
            yield (
                f"trainer.mixed_precision = bfloat16: needs weights in float32, and model.dtype = {self.model.dtype}; "
                "use model.dtype=float32, or trainer.mixed_precision=none"
            )
        if trainer.cpu_offload and self.model.device == "cpu":
            yield (
                "trainer.cpu_offload = true: is ignored with model.device = cpu, where all is in the memory of the "
                "host anyway; remove it"
            )

    def _broken_by_sampler(self) -> Iterator[str]:
        engine, home = self.sampler.engine, self.workers.places()["sampler"]
        if not isinstance(engine, VllmEngineConfig):
            return
        if engine.gpu_memory_utilization and self.model.device == "cpu":
            yield "sampler.engine.gpu_memory_utilization: model.device = cpu has no GPU; use sampler.engine.cache_mb"
        if not engine.recompute_on_publish and not (self.schedule.mixes_batches and not self.schedule.drains):
            yield (
                "sampler.engine.recompute_on_publish = false: is ignored, because no request runs at a publish "
                f"with schedule.name = {self.schedule.name}; remove it, or use asynchronous and schedule.partial=true"
            )
        pool, given = self.pools[home], self.devices_per_process(home)
        devices = 1 if given is None else given or engine.tensor_parallel
        if pool.executor != "inline" and self.model.device != "cpu" and devices < engine.tensor_parallel:
            yield (
                f"sampler.engine.tensor_parallel = {engine.tensor_parallel}: a process of pools.{home} has {devices} "
                f"GPUs. Fix: a pool of its own for the sampler (workers.sampler), or pools.{home}.devices_per_process"
            )

    def _broken_by_placement(self) -> Iterator[str]:
        if self.publish.content == "adapter" and not self.trainer.lora:
            yield "publish.content = adapter: there is no adapter; set trainer.lora, or use publish.content=weights"
        if self.publish.dtype == self.model.dtype:
            yield f"publish.dtype = {self.publish.dtype}: is that of model.dtype anyway; remove it"
        sampled = self.problems_per_step * self.group_size
        in_minibatch = sampled // self.minibatches, "minibatch", "problems_per_step x group_size / minibatches"
        in_step = sampled, "step", "problems_per_step x group_size"
        shares = {"sampler": in_step, "reward_model": in_step}
        for group, pool in self.workers.places().items():
            ranks, (rollouts, share, formula) = self.pools[pool].processes, shares.get(group, in_minibatch)
            if ranks > rollouts:
                yield (
                    f"pools.{pool}.processes = {ranks}: a {share} has {rollouts} rollouts ({formula}), less than one "
                    f"for each process of the {group}; lower processes or raise problems_per_step"
                )
        actor_is_reference = self.trainer.lora and not self.teacher.path
        if actor_is_reference and self.trainer.reference_sharding:
            yield (
                f"trainer.reference_sharding = {self.trainer.reference_sharding}: with trainer.lora the actor without "
                "its adapter is the reference; remove it"
            )
        if actor_is_reference and self.workers.reference:
            yield (
                f"workers.reference = {self.workers.reference!r}: with trainer.lora the actor without its adapter is "
                "the reference, so there is no worker to place; remove it"
            )

    def _broken_by_lengths(self) -> Iterator[str]:
        contexts: dict[str, int] = {}
        if not self.model.path:  # else its context is known when the model is
            contexts["model.tiny.context"] = self.model.tiny.context
        if context := getattr(self.sampler.engine, "context", 0):
            contexts["sampler.engine.context"] = context
        for place, context in contexts.items():
            for name, limit in self.length_limits.items():
                if limit >= context:
                    yield f"{name} = {limit}: must be below {place} = {context}"
        given = self.sampler.max_new_tokens
        if self.length_schedule and given not in (SamplerConfig().max_new_tokens, self.length_schedule.limits[-1]):
            yield (
                f"sampler.max_new_tokens = {given}: length_schedule.stages say how long responses are, and the last of "
                f"them says {self.length_schedule.limits[-1]}; give that too, or remove sampler.max_new_tokens"
            )

    def _broken_by_alignment(self) -> Iterator[str]:
        if self.alignment is None:
            return
        if self.task.name != "code_generation":
            yield (
                f"alignment: samples are made of programs, and task.name = {self.task.name} requests none; remove it"
            )
        if self.problems_per_step < 2:
            yield "alignment: a step needs an alignment sample and a program at least; raise problems_per_step"
        if self.reward_model.path:
            yield (
                "alignment: a reward model would be added to the rewards of its samples too; remove reward_model.path"
            )
        if self.alignment.sft_share and not self.sft.is_on and self.model.path:
            yield (
                f"alignment.sft_share = {self.alignment.sft_share}: is ignored without a warm start (sft.steps = 0); "
                "remove it"
            )
        if isinstance(self.schedule, MinibatchPipelineConfig) and self.schedule.order == "completion":
            yield (
                "alignment: answers to its samples are complete first, so minibatches in order of completion hold "
                "either alignment samples or programs; set schedule.order = prompt"
            )
        longest = self.alignment.max_new_tokens
        if longest is not None and longest > self.sampler.max_new_tokens:
            yield (
                f"alignment.max_new_tokens = {longest}: must be at most sampler.max_new_tokens = "
                f"{self.sampler.max_new_tokens}, which bounds all responses"
            )
        youngest, most = self.schedule.staleness + 1, self.alignment.max_staleness
        if self.alignment.programs != "reference" and most is not None and most < youngest:
            yield (
                f"alignment.max_staleness = {most}: with schedule.name={self.schedule.name} a sample is {youngest} "
                f"versions old when it can be asked first; use {youngest} or more, or null"
            )

    @property
    def length_limits(self) -> dict[str, int]:
        """Most tokens of a response by the setting that says so, of training in the order of its stages."""
        found = {"sampler.max_new_tokens": self.sampler.max_new_tokens}
        if self.length_schedule:
            stages = enumerate(self.length_schedule.limits)
            found = {f"length_schedule.stages.{number}.max_new_tokens": limit for number, limit in stages}
        if self.evaluation.max_new_tokens:
            found["evaluation.max_new_tokens"] = self.evaluation.max_new_tokens
        return found

    @property
    def sampling_dtype(self) -> str:
        return self.publish.dtype or self.model.dtype

    @property
    def sampler_is_alone(self) -> bool:
        """The pool of the sampler has no other worker group."""
        homes = self.workers.places()
        return list(homes.values()).count(homes["sampler"]) == 1

    def devices_per_process(self, pool: str) -> int | None:
        """Devices of each process of a pool, as far as settings say: its own, or those that a sampler divides a model
        over which is alone there.
        """
        given, engine = self.pools[pool].devices_per_process, self.sampler.engine
        is_alone = self.sampler_is_alone and self.workers.sampler == pool
        return engine.tensor_parallel if given is None and is_alone and isinstance(engine, VllmEngineConfig) else given

    @property
    def publishes_adapter(self) -> bool:
        """Only the matrices of adapters go to samplers."""
        return self.trainer.lora is not None and self.publish.content != "weights"

    @property
    def samples_repeatably(self) -> bool:
        """Responses must not depend on the time at which requests come: schedule and engine keep batches apart."""
        mixing = VllmEngineConfig | RemoteEngineSettings
        return not self.schedule.mixes_batches and not isinstance(self.sampler.engine, mixing)

    @property
    def most_turns(self) -> int:
        return getattr(self.task, "turns", 1)

    @property
    def longest_trained(self) -> int:
        """Most tokens of a turn that is learnt from."""
        return self.length_schedule.limits[-1] if self.length_schedule else self.sampler.max_new_tokens

    @property
    def longest_evaluated(self) -> int:
        """Most tokens of a turn of an evaluation."""
        return self.evaluation.max_new_tokens or self.longest_trained
