"""Settings: resource pools, which worker group lives on which, and how weights get from one to another."""

from collections.abc import Iterator
from typing import Literal

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat


class PoolConfig(Config):
    """Processes with devices of their own. Groups on one pool share its devices and run one at a time."""

    executor: Literal["inline", "spawn", "ray"] = "inline"
    """Executor of the workers. `inline`: a thread of this process. `spawn`: processes of this machine. `ray`: actors in
    a Ray cluster: that of RAY_ADDRESS, or one that runs here, or one that is started here."""
    processes: Positive = 1
    """Processes of each worker group on the pool; the ranks that its data is split over."""
    devices_per_process: NonNegative | None = None
    """GPUs that each process has to itself; 0 is the CPU. Left out: 1 if model.device finds a GPU on this machine."""
    memory_gb: PositiveFloat | None = None
    """GiB that all groups on the pool may take together at each rank, on its GPU or, without one, in main memory beside
    what libraries take. A run whose plan needs more is refused before a model is loaded. Left out: no limit."""

    def broken_rules(self) -> Iterator[str]:
        if self.executor == "inline" and self.processes > 1:
            yield (
                f"processes = {self.processes}: the inline executor runs one worker, in this process; "
                "use executor=spawn or ray for more"
            )
        if self.executor == "inline" and self.devices_per_process is not None:
            yield (
                f"devices_per_process = {self.devices_per_process}: the inline executor does not use it, its workers "
                "run where model.device says; use executor=spawn or ray"
            )


class WorkersConfig(Config):
    """Pool of each worker group."""

    actor: str = "main"
    """Pool of the policy in training."""
    sampler: str = "main"
    """Pool of the engine that samples responses."""
    reference: str = ""
    """Pool of the policy that training started from, for algorithms with a KL term; empty: that of the actor."""
    critic: str = ""
    """Pool of the critic, for algorithms that have one; empty: that of the actor."""
    reward_model: str = ""
    """Pool of the reward model, if there is one; empty: that of the actor."""

    def places(self) -> dict[str, str]:
        """Worker group -> pool."""
        return {name: pool or self.actor for name, pool in self.model_dump().items()}


class SyncCheckConfig(Config):
    """Checks that samplers compute with what was published: digests of weights, and log-probs of the same tokens."""

    prompts: Positive = 4
    """Number of prompts."""
    tokens: Positive = 8
    """Most tokens sampled for each."""
    limit: PositiveFloat | None = None
    """Largest mean gap between the log-probs of both sides for the same weights, in nats per token; above it, or where
    a single token of the prompts is off by ten times as much, the run ends. null: what rounding explains, 1e-4 in
    float32 and 0.1 in bfloat16."""


class PublishConfig(Config):
    """Transfer of new weights from the trainer to the samplers."""

    content: Literal["weights", "adapter"] | None = None
    """`adapter`: with `trainer.lora` the matrices of the adapters alone. null: that with `trainer.lora`, else all
    `weights`."""
    dtype: Literal["bfloat16"] | None = None
    """Number format in which weights are published and samplers compute. null: `model.dtype`."""
    timeout_s: Positive = 3600
    """Weights that have not reached all samplers after so many seconds end the run. Longer than the longest response
    where `schedule.partial` is false."""
    sync_check: SyncCheckConfig | None = SyncCheckConfig()
    """The comparisons of trainer and samplers; null: none."""
