"""The three stages of training. Schedules order them; nothing else does.

collect(items, iteration)   sample and judge                      -> Collection of groups
learn(groups)               advantages, log-probs, updates        -> Learned
publish(version)            weights from the trainer to the sampler
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from autoclave.algorithms import Algorithm
from autoclave.core import Group, TaskItem
from autoclave.models import encode_prompt
from autoclave.rollout import Collection, Request, RewardFunction, SamplingParameters
from autoclave.training.accounting import NOTHING, SequenceLengths
from autoclave.training.learning import mask_groups, row_advantages, with_advantages
from autoclave.workers import (
    ActorWorker,
    Batch,
    NoReference,
    ReferenceWorker,
    SamplerWorker,
    WorkerGroup,
    WorkerSampler,
)


@dataclass(frozen=True, slots=True)
class Learned:
    """What one `learn` did: its groups with mask reasons, the advantage of each rollout in order, and metrics."""

    groups: Sequence[Group]
    advantages: Sequence[float]
    metrics: Mapping[str, float]
    computed: SequenceLengths = NOTHING
    """Of the rollouts that were scored and learnt from."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Collect, learn, publish, on the worker groups of a run."""

    actor: WorkerGroup[ActorWorker]
    reference: WorkerGroup[ReferenceWorker] | NoReference
    sampler: WorkerGroup[SamplerWorker]
    tokenizer: PreTrainedTokenizerBase
    reward: RewardFunction
    algorithm: Algorithm
    sampling: SamplingParameters
    group_size: int
    minibatches: int
    seed: int

    def collect(self, items: Sequence[TaskItem], iteration: int) -> Collection:
        """Start sampling and judging. Random numbers depend on (seed, iteration, item, sample) alone."""
        requests = [
            [Request(prompt, self.sampling, (self.seed, iteration, index, sample)) for sample in range(self.group_size)]
            for index, prompt in enumerate(encode_prompt(self.tokenizer, item.messages) for item in items)
        ]
        return Collection(items, requests, WorkerSampler(self.sampler), self.reward)

    def learn(self, groups: Sequence[Group]) -> Learned:
        """One update of the policy from what `groups` earned; each line is one arrow of docs/architecture.md."""
        groups = mask_groups(self.algorithm, groups)
        whole = with_advantages(self.algorithm, Batch.from_groups(groups, minibatches=self.minibatches))
        computed = whole.select(whole.rows["computes"])
        batch = self.actor.log_probs(computed)
        batch = self.reference.log_probs(batch)
        metrics = self.actor.update(batch, self.minibatches).result()
        lengths = SequenceLengths(computed.lengths, computed.response_lengths)
        return Learned(groups, row_advantages(whole).tolist(), metrics, lengths)

    def publish(self, version: int) -> None:
        """Hand the trainer's weights to the sampler; what is sampled from now on is stamped `version`."""
        self.sampler.update_weights(version, self.actor.export_weights()).result()
