"""The worker that holds the policy in training: log-probs, updates, weights out, state in and out."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column, StepLoss
from autoclave.config import OptimizerConfig, TrainerConfig
from autoclave.models import Policy, save_adapter, without_adapter
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.trainer.learner import LearningWorker
from autoclave.workers.trainer.peers import gather, gather_rows, this_rank
from autoclave.workers.trainer.publishing import SendsWeights
from autoclave.workers.trainer.scoring import Scoring, batch_log_probs, log_probs_of
from autoclave.workers.trainer.sharding import PLAIN
from autoclave.workers.trainer.sources import gathered_weights, sources_of
from autoclave.workers.trainer.trained_model import TrainedModel, in_minibatches, mean_over_steps

OLD = Column.OLD_LOG_PROBS.value


class ActorWorker(LearningWorker, SendsWeights):
    """The policy in training by `algorithm`; its learning rate is planned over `total_steps`."""

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        optimizer: OptimizerConfig,
        *,
        total_steps: int,
        temperature: float,
        micro_batch_tokens: int,
        trainer: TrainerConfig = PLAIN,
        device: torch.device | None = None,
        learns_in_parts: bool = False,
    ) -> None:
        """Make it around `policy`.

        Args:
            total_steps: optimizer steps that the learning rate is planned over.
            temperature: of the distribution whose log-probs are computed.
            micro_batch_tokens: most tokens of a forward and backward pass.
            trainer: how the model is held and computed.
            device: where it computes; left out, where the policy is, which must be the host if it is sharded.
            learns_in_parts: a batch may come in several updates. Old log-probs are then those of the weights that were
                published last, of which it keeps a copy from the first update on.
        """
        self._policy, self._model, self._algorithm = policy, policy.model, algorithm
        self._learns_in_parts = learns_in_parts
        self._found = np.zeros(0, dtype=np.float32)  # old log-probs of the batch that was learnt from last
        device = device or policy.model.device
        self._scoring = Scoring.of(
            policy.model, trainer, device, temperature=temperature, micro_batch_tokens=micro_batch_tokens
        )
        super().__init__(
            TrainedModel(
                policy.model,
                optimizer,
                total_steps=total_steps,
                micro_batch_tokens=micro_batch_tokens,
                layout=self._scoring.layout,
                trainer=trainer,
                device=device,
            )
        )

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `old_log_probs` (N,) float32 of the policy as it is now."""
        return batch.with_responses(old_log_probs=self._scored(batch))

    @register(Dispatch.DATA_PARALLEL)
    def reference_log_probs(self, batch: Batch) -> Batch:
        """`batch` with `reference_log_probs` (N,) float32 of the policy without its adapter.

        Raises ValueError: it has none.
        """
        with without_adapter(self._model):
            return batch.with_responses(reference_log_probs=self._scored(batch))

    @register(Dispatch.DATA_PARALLEL)
    def old_log_probs(self, batch: Batch) -> Batch:
        """`log_probs`, if the algorithm reads them before the update; else `batch` as it is, and the update finds them.

        The first optimizer step computes the log-probs of its rows anyway, by the weights that there are now. After an
        update of another part of the batch they are those of the weights before it.
        """
        if not self._algorithm.needs_old_log_probs and not self._trained.remembers:
            return batch
        with self._trained.as_remembered():
            return self.log_probs(batch)

    @register(Dispatch.DATA_PARALLEL)
    def with_log_probs(self, batch: Batch) -> Batch:
        """`batch`, the one that was learnt from last, with the `old_log_probs` that were found on the way."""
        return batch.with_responses(old_log_probs=self._found) if OLD not in batch.responses else batch

    def _scored(self, batch: Batch) -> np.ndarray:
        return log_probs_of(self._model, batch, self._scoring)

    @register(Dispatch.DATA_PARALLEL)
    def update(self, batch: Batch, minibatches: int) -> dict[str, float]:
        """One optimizer step for each minibatch of `batch`, in order; one that has no rows left changes nothing.

        Reads the columns `minibatch` and `weights`, and those that the algorithm's loss names. Without `old_log_probs`
        they are computed: for the first step by the step itself, for the others before it.

        Returns:
            Metrics, means over the optimizer steps that were taken.

        Raises:
            FaultError: a column, a loss or a gradient is not finite; the message names it and the optimizer step, and
                the weights are those before that step.
        """
        self._trained.require_finite_columns(batch)
        if self._learns_in_parts:
            self._trained.remember()
        steps = (
            _with_credit(self._trained.step(self._trusted(rows), self._predict, self._loss))
            for rows in self._with_later_log_probs(batch, in_minibatches(batch, minibatches))
        )
        return mean_over_steps(steps) | _log_prob_mismatch(self.with_log_probs(batch))

    def _with_later_log_probs(self, batch: Batch, steps: list[Batch]) -> list[Batch]:
        """The rows of each optimizer step with `old_log_probs`, but for the first, which notes them in `_found`."""
        if OLD in batch.responses:
            return steps
        self._found = np.zeros(len(batch.response_rows), dtype=np.float32)
        rows = batch.rows["minibatch"]
        places = [batch.response_index(np.flatnonzero(rows == number)) for number in range(len(steps))]
        for number in range(1, len(steps)):
            self._found[places[number]] = self._scored(steps[number])
            steps[number] = steps[number].with_responses(**{OLD: self._found[places[number]]})
        return [steps[0].with_responses(place=places[0]), *steps[1:]]

    def _predict(self, part: Batch) -> dict[str, Tensor]:
        log_probs, entropy = batch_log_probs(
            self._model, part, self._scoring, entropy_gradient=self._algorithm.needs_entropy
        )
        found: dict[str, Tensor] = {Column.LOG_PROBS: log_probs, Column.ENTROPY: entropy}
        if "place" in part.responses:
            found[Column.OLD_LOG_PROBS] = log_probs.detach()
            self._found[part.responses["place"]] = log_probs.detach().cpu().numpy()
        return found

    def _loss(self, columns: Mapping[str, Tensor]) -> StepLoss:
        loss = self._algorithm.loss(columns, observed={"entropy": columns[Column.ENTROPY].detach()})
        if Column.ADVANTAGES in columns and columns[Column.LOG_PROBS].requires_grad:
            _observe_credit(loss, columns, self._algorithm.penalty_gradient(columns))
        return loss

    def _trusted(self, batch: Batch) -> Batch:
        """All rows of an optimizer step, with the advantages that the algorithm trusts where the policy is now."""
        if not self._algorithm.trust_region:
            return batch
        batch = batch.with_responses(step_log_probs=self._scored(batch))
        step, own = gather_rows(batch)  # a group may have rows on several ranks
        if not len(step):
            return batch
        columns = {**step.rows, **step.responses, Column.ROW: step.response_rows}
        trusted = self._algorithm.trust({name: torch.from_numpy(column) for name, column in columns.items()})
        return batch.with_responses(advantages=trusted[Column.ADVANTAGES].float().numpy()[own])

    @register(Dispatch.ONE_TO_ALL)
    def write_weights(self, version: int, deadline_s: float) -> None:
        """Publish the weights as they are now; old log-probs are theirs from now on. See `SendsWeights`."""
        self._trained.forget()
        super().write_weights(version, deadline_s)

    @register(Dispatch.ONE_TO_ALL)
    def export_weights(self) -> Mapping[str, Tensor]:
        """A copy of the weights by name, on rank 0; an adapter is added in, and tied ones are one tensor."""
        found = gathered_weights(sources_of(self._model))
        return {name: copy for names, tensor in found for copy in [tensor.clone()] for name in names}

    @register(Dispatch.ONE_TO_ALL)
    def export(self, folder: Path) -> None:
        """Write the policy to `folder` in Hugging Face form, for use elsewhere.

        If an adapter learns, it is added in, and `folder/adapter` holds it alone.

        Raises HostError: the disk is full or fails.
        """
        matrices = gathered_weights(sources_of(self._model, adapter_only=True))
        adapter = {names[0]: tensor for names, tensor in matrices}
        self.export_model(self._policy, folder)
        if this_rank() == 0:
            save_adapter(self._model, folder / "adapter", weights=adapter)


_CREDIT = {
    "credit/gradient_advantage": ("agreement", "agreement_size"),
    "credit/raised_share": ("raised", "advantage_size"),
    "credit/penalty": ("penalty_size", "earned_size"),
}
"""Metrics as quotients of two sums over tokens."""


def _observe_credit(loss: StepLoss, columns: Mapping[str, Tensor], penalty: Tensor) -> None:
    """Have the backward pass add the sums of `_CREDIT` over the trained tokens to the diagnostics.

    `agreement` is the direction in which the loss pulls a log-prob times its advantage. A backward pass of its own
    would disturb the hooks of sharded layers.
    """
    totals = loss.diagnostics.totals
    totals.update({name: 0.0 for sums in _CREDIT.values() for name in sums})
    trained = columns[Column.WEIGHTS] > 0
    advantages, weights = (columns[name][trained].double() for name in (Column.ADVANTAGES, Column.WEIGHTS))
    other = penalty[trained].double()

    def observe(gradient: Tensor) -> None:
        agreement = -gradient[trained].double() * advantages
        sums = {
            "agreement": agreement,
            "agreement_size": agreement.abs(),
            "raised": (weights * advantages).clamp(min=0),
            "advantage_size": (weights * advantages).abs(),
            "penalty_size": other.abs(),
            "earned_size": (gradient[trained].double() - other).abs(),
        }
        totals.update(zip(sums, torch.stack([values.sum() for values in sums.values()]).tolist(), strict=True))

    columns[Column.LOG_PROBS].register_hook(observe)


def _with_credit(metrics: dict[str, float]) -> dict[str, float]:
    """`metrics` with the quotients of `_CREDIT` in place of their sums."""
    sums = {name: metrics.pop(name, 0.0) for pair in _CREDIT.values() for name in pair}
    return metrics | {name: sums[part] / sums[whole] for name, (part, whole) in _CREDIT.items() if sums[whole]}


def _log_prob_mismatch(batch: Batch) -> dict[str, float]:
    """Largest difference between log-probs of sampler and trainer for the same weights; shows staleness and bugs."""
    if "sampler_log_probs" not in batch.responses:
        return {}
    gap = np.abs(batch.responses["sampler_log_probs"] - batch.responses["old_log_probs"])
    gaps = [found for found in gather(float(gap.max()) if len(gap) else None) if found is not None]
    return {"log_prob_mismatch": max(gaps)} if gaps else {}
