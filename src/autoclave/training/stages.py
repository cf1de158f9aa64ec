"""The three stages of training. Schedules order them; nothing else does.

collect(items, iteration)   sample and judge                      -> Collection of groups
learn(groups)               advantages, log-probs, updates        -> Learned
publish(version)            weights from the trainer to the samplers -> metrics
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from autoclave.algorithms import Algorithm, batch_metrics, is_uniform
from autoclave.config import LengthScheduleConfig
from autoclave.core import FaultError, Group, TaskItem
from autoclave.core.files import checkpoint_data, write_atomically
from autoclave.core.rollout import FloatArray
from autoclave.core.timeline import Timeline
from autoclave.environments import Grader
from autoclave.models import encode_prompt
from autoclave.planning.accounting.speed import SequenceLengths
from autoclave.rollout import Collection, NextTurn, Request, SamplingParameters
from autoclave.rollout.collection import CollectionSpans
from autoclave.training.checkpoints import SavedPart, SavedState
from autoclave.training.learned import Learned
from autoclave.training.learning import (
    mask_discarded,
    mask_groups,
    tensors,
    token_ledger,
    trainer_log_probs,
    with_advantages,
    with_model_rewards,
    with_rewards,
)
from autoclave.training.length_schedule import LengthSchedule
from autoclave.workers import Batch, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.critic import CriticWorker, NoCritic
from autoclave.workers.trainer.reference import (
    NoReference,
    NoRewardModel,
    ReferenceWorker,
    RewardModelWorker,
    SharedReference,
)
from autoclave.workers.weights.publisher import Publisher
from autoclave.workers.weights.sync_check import SyncCheck, rollout_mismatch


@dataclass(frozen=True, slots=True)
class Stages:
    """Collect, learn, publish, on the worker groups of a run."""

    actor: WorkerGroup[ActorWorker]
    reference: WorkerGroup[ReferenceWorker] | SharedReference | NoReference
    critic: WorkerGroup[CriticWorker] | NoCritic
    reward_model: WorkerGroup[RewardModelWorker] | NoRewardModel
    sampler: SamplerPool
    publisher: Publisher
    tokenizer: PreTrainedTokenizerBase
    grade: Grader
    algorithm: Algorithm
    sampling: SamplingParameters
    group_size: int
    minibatches: int
    """Optimizer steps of a `learn`."""
    seed: int
    next_turn: NextTurn | None = None
    """Goes on with an episode; every rollout has one turn without it."""
    sync_check: SyncCheck | None = None
    """Compares trainer and samplers after each publish."""
    publish_s: float = 3600.0
    """Weights that are not published after so long are an error."""
    drains: bool = False
    """New weights wait for responses in the making; else these go on with them."""
    timeline: Timeline = field(default_factory=Timeline)
    term_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """By task, the factor on its term of the objective; 1 where none is given."""
    task_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """By task, most new tokens of a response, where it may have fewer than others."""
    saves_before_learning: bool = False
    """Learning waits until a checkpoint is written, whose copy shares memory with what learning keeps."""
    length_schedule_config: LengthScheduleConfig | None = None
    """Limits of new tokens, stage by stage, in place of that of `sampling`."""
    controllers: "ControllerState" = field(init=False)
    length_schedule: LengthSchedule = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "controllers", ControllerState(self.algorithm))
        object.__setattr__(
            self, "length_schedule", LengthSchedule(self.sampling.max_new_tokens, self.length_schedule_config)
        )

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        """Start sampling and judging. Random numbers depend on (seed, iteration, item, sample) alone.

        Groups that teach nothing are sampled again as often as the algorithm asks (dynamic sampling). All responses of
        a batch have the limit of the stage in which it was begun first.

        Args:
            items: what is asked.
            iteration: whose batch it is.
            known: by index of the item, groups that are complete already, and None where one is still wanted; others
                are not asked. By default all are.
        """
        sampling = replace(self.sampling, max_new_tokens=self.length_schedule.begin(iteration))
        prompts = [encode_prompt(self.tokenizer, item.messages) for item in items]
        asked = range(len(items)) if known is None else [index for index, group in known.items() if group is None]
        complete = {index: group for index, group in (known or {}).items() if group}

        def requests(index: int, times: int) -> list[Request]:
            samples = range(times * self.group_size, (times + 1) * self.group_size)
            limit = min(sampling.max_new_tokens, self.task_limits.get(items[index].task, sampling.max_new_tokens))
            own = replace(sampling, max_new_tokens=limit)
            return [Request(prompts[index], own, (self.seed, iteration, index, n)) for n in samples]

        def resample(index: int, times: int, group: Group) -> list[Request] | None:
            is_kept = times >= self.algorithm.max_resamples or not is_uniform(self.algorithm.mask(group.rollouts))
            return None if is_kept else requests(index, times + 1)

        first = [requests(index, 0) if index in asked else [] for index in range(len(items))]
        return Collection(
            items,
            first,
            self.sampler,
            self.grade,
            next_turn=self.next_turn,
            resample=resample if self.algorithm.max_resamples else None,
            complete=complete,
            spans=CollectionSpans(self.timeline, iteration + 1),
        )

    def learn(self, groups: Sequence[Group]) -> Learned:
        """One update of policy and critic from what `groups` earned; docs/concepts/architecture.md draws it."""
        groups = mask_groups(self.algorithm, groups)
        full_batch = Batch.from_groups(groups, minibatches=self.minibatches, term_weights=self.term_weights)
        full_batch = self.reward_model.scores(full_batch).result()
        full_batch = with_rewards(self.algorithm, full_batch, self.controllers.state)
        batch = self.actor.old_log_probs(full_batch.select(full_batch.rows["computes"]))
        batch = self.reference.log_probs(batch)
        batch = self.critic.values(batch)
        batch = with_advantages(self.algorithm, batch.result())
        critic_metrics = self.critic.update(batch, self.minibatches)
        actor_metrics = self.actor.update(batch, self.minibatches)
        metrics = critic_metrics.result() | actor_metrics.result() | batch_metrics(tensors(batch))
        batch = self.actor.with_log_probs(batch).result()
        metrics |= self.controllers.advance(metrics)
        groups = mask_discarded(self.algorithm, with_model_rewards(groups, full_batch), full_batch)
        lengths = SequenceLengths(batch.lengths, batch.response_lengths)
        metrics |= self.mismatch(groups, trainer_log_probs(full_batch, batch))
        return Learned(groups, token_ledger(full_batch, batch), metrics, trainer_log_probs(full_batch, batch), lengths)

    def mismatch(self, groups: Sequence[Group], log_probs: Sequence[FloatArray | None]) -> dict[str, float]:
        """Metrics of how far the sampler's log-probs are from the trainer's, before the update; see `rollout_mismatch`.

        Raises FaultError: neither rounding nor staleness explains it.
        """
        limit = self.sync_check.explained if self.sync_check else None
        return rollout_mismatch(groups, log_probs, self.publisher.version, limit)

    def saved(self, *others: SavedPart) -> SavedState:
        """The state in a checkpoint, with that of `others`."""
        groups = {"actor": self.actor} | ({} if isinstance(self.critic, NoCritic) else {"critic": self.critic})
        return SavedState(groups, self.controllers, self.length_schedule, *others)

    def begin(self, version: int) -> Mapping[str, float]:
        """Hand the trainer's weights to the samplers as `version`, any number; before all else.

        At the start of a run, and again after workers were restarted; see `publish`.
        """
        self.publisher.begin(version, self.sampler.groups)
        return self._handed_over(version)

    def publish(self, version: int) -> Mapping[str, float]:
        """Hand the trainer's weights to the samplers; what is sampled from now on is stamped `version`.

        Returns:
            Metrics: how many weights an engine could not report, and how far samplers and trainer are apart, if they
            are compared.

        Raises:
            FaultError: they have not reached all samplers after `publish_s`, the message says who is waited for; or a
                sampler computes with other weights.
            Exception: what the trainer raised, or a sampler; the message then names version and sampler.
        """
        self.publisher.write(version)
        return self._handed_over(version)

    def _handed_over(self, version: int) -> Mapping[str, float]:
        published = self.sampler.update_weights(version, self.publisher, drains=self.drains)
        if not wait([published], self.publish_s).done:
            state = self.sampler.state()
            raise FaultError(f"weights of version {version} are not published after {self.publish_s:.0f} s:\n{state}")
        published.result()
        found = self.sync_check.check(version, self.actor, self.sampler) if self.sync_check else {}
        return {"publish/unread_weights": float(self.publisher.unread), **found}


FILE = "algorithm.json"


class ControllerState:
    """The state of `algorithm`, which every run that does not resume begins with."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.restart()

    def restart(self) -> None:
        """Go back to the state before the first step."""
        self.state = self._algorithm.first_state

    def advance(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Go on to the next step, after one with these metrics.

        Returns:
            The coefficients of the step that was taken, as metrics.
        """
        used = {name: first for name, (first, *_) in self.state.items()}
        self.state = self._algorithm.next_state(self.state, metrics)
        return used

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, json.dumps(self.state) + "\n")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. Raises CheckpointError: it is missing or damaged."""
        with checkpoint_data(folder / FILE) as found:
            self.state = {name: tuple(map(float, found[name])) for name in self._algorithm.first_state}
