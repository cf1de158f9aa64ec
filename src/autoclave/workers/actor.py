"""The worker that holds the policy in training: log-probs, updates, weights out, state in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column, Diagnostics, step_metrics
from autoclave.config import OptimizerConfig
from autoclave.core import HostError
from autoclave.models import Policy, save_policy
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.finite import gradients_of, require_finite
from autoclave.workers.scoring import log_probs_of, padded_scores

_LOOK_AT_POLICY = "Go on from a checkpoint with a lower optimizer.learning_rate; policy/ratio_max shows the course."
_LOWER_LEARNING_RATE = "Go on from a checkpoint with a lower optimizer.learning_rate."


class ActorWorker:
    """The policy, its optimizer and the course of its learning rate, which is planned over `total_steps`."""

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        optimizer: OptimizerConfig,
        *,
        total_steps: int,
        temperature: float,
        micro_batch_tokens: int,
    ) -> None:
        self._policy, self._model, self._algorithm = policy, policy.model, algorithm
        self._temperature, self._micro_batch_tokens = temperature, micro_batch_tokens
        self._settings, self._total_steps, self._steps_taken = optimizer, total_steps, 0
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=optimizer.learning_rate,
            betas=optimizer.betas,
            weight_decay=optimizer.weight_decay,
        )

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `old_log_probs` (N,) float32 of the policy as it is now."""
        column = log_probs_of(self._model, batch, self._temperature, self._micro_batch_tokens)
        return batch.with_responses(old_log_probs=column)

    @register(Dispatch.ONE_TO_ALL)
    def update(self, batch: Batch, minibatches: int) -> dict[str, float]:
        """One optimizer step for each minibatch of `batch`, in order; one that has no rows left changes nothing.

        Reads the columns `minibatch` and `weights`, and those that the algorithm's loss names.

        Returns:
            Metrics, means over the optimizer steps that were taken.

        Raises:
            FaultError: a column, a loss or a gradient is not finite; the message names it and the optimizer step, and
                the weights are those before that step.
        """
        trained = batch.responses["weights"] > 0
        columns = {name: torch.from_numpy(column[trained]) for name, column in batch.responses.items()}
        require_finite(columns, f"before optimizer step {self._steps_taken + 1}", _LOOK_AT_POLICY)
        steps = [self._step(batch.select(batch.rows["minibatch"] == number)) for number in range(minibatches)]
        taken = [metrics for metrics in steps if metrics]
        means = {name: math.fsum(step[name] for step in taken) / len(taken) for name in (taken[0] if taken else {})}
        return means | _sampler_gap(batch)

    def _step(self, batch: Batch) -> dict[str, float]:
        learning_rate = self._set_learning_rate()
        self._steps_taken += 1
        if not len(batch):
            return {}
        if self._algorithm.trust_region:
            batch = self._trusted(batch)
        self._optimizer.zero_grad(set_to_none=True)
        observed: list[Diagnostics] = []
        for rows in batch.micro_batches(self._micro_batch_tokens):
            part = batch.select(rows)
            log_probs, entropy = padded_scores(
                self._model, part, self._temperature, entropy_gradient=self._algorithm.needs_entropy
            )
            columns = {name: torch.from_numpy(column).to(log_probs.device) for name, column in part.responses.items()}
            row = torch.from_numpy(part.response_rows).to(log_probs.device)
            columns |= {Column.ROW: row, Column.LOG_PROBS: log_probs, Column.ENTROPY: entropy}
            loss = self._algorithm.loss(columns, observed={"entropy": entropy.detach()})
            if not math.isfinite(loss.diagnostics.totals["loss"]):
                trained = columns[Column.WEIGHTS] > 0
                tensors = {name: column[trained] for name, column in columns.items()} | {"loss": loss.total}
                require_finite(tensors, f"optimizer step {self._steps_taken}", _LOOK_AT_POLICY)
            loss.total.backward()
            observed.append(loss.diagnostics)
        norm = self._clip_gradients()
        self._optimizer.step()
        return step_metrics(observed) | {"gradient_norm": norm, "learning_rate": learning_rate}

    def _trusted(self, batch: Batch) -> Batch:
        """All rows of an optimizer step, with the advantages that the algorithm trusts where the policy is now."""
        scored = log_probs_of(self._model, batch, self._temperature, self._micro_batch_tokens)
        batch = batch.with_responses(step_log_probs=scored)
        columns = {**batch.rows, **batch.responses, Column.ROW: batch.response_rows}
        trusted = self._algorithm.trust({name: torch.from_numpy(column) for name, column in columns.items()})
        return batch.with_responses(advantages=trusted[Column.ADVANTAGES].float().numpy())

    def _clip_gradients(self) -> float:
        """The norm of the gradient before it is clipped, which must be finite: clipping would make all of it NaN."""
        gradients = gradients_of(self._model.named_parameters())
        norm = torch.nn.utils.get_total_norm(gradients.values())
        if not math.isfinite(norm):
            where = f"optimizer step {self._steps_taken}"
            require_finite(gradients | {"norm of the gradient": norm}, where, _LOWER_LEARNING_RATE)
        torch.nn.utils.clip_grads_with_norm_(self._model.parameters(), self._settings.gradient_clip, norm)
        return norm.item()

    def _set_learning_rate(self) -> float:
        share = learning_rate_share(self._settings, self._steps_taken, self._total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * share
        return self._settings.learning_rate * share

    @register(Dispatch.ONE_TO_ALL)
    def export_weights(self) -> Mapping[str, Tensor]:
        """A copy of the weights by name, as they are now."""
        return {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}

    @register(Dispatch.ONE_TO_ALL)
    def save(self, folder: Path) -> None:
        """Write weights and tokenizer to `folder/model`, the optimizer's state to `folder/optimizer.pt`.

        Raises:
            HostError: the disk is full or fails.
        """
        save_policy(self._policy, folder / "model")
        state = {"optimizer": self._optimizer.state_dict(), "steps": self._steps_taken}
        try:
            torch.save(state, folder / "optimizer.pt")
        except (OSError, RuntimeError) as error:  # which of the two depends on where in the file it fails
            raise HostError(f"{folder / 'optimizer.pt'}: cannot be written ({error})") from error

    @register(Dispatch.ONE_TO_ALL)
    def load_optimizer(self, folder: Path) -> None:
        """Restore the optimizer's state that `save` wrote; the weights came with the policy."""
        state = torch.load(folder / "optimizer.pt", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._steps_taken = state["steps"]


def learning_rate_share(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """The learning rate of optimizer step `step` (from 0), as a share of the peak.

    A linear rise over the warm-up, then the decay, which would reach `final_fraction` at `total_steps`.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    left = {"none": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.decay]
    return config.final_fraction + (1 - config.final_fraction) * left


def _sampler_gap(batch: Batch) -> dict[str, float]:
    """How far the sampler's log-probs are from the trainer's for the same weights; staleness and bugs show here."""
    if "sampler_log_probs" not in batch.responses or not len(batch):
        return {}
    gap = np.abs(batch.responses["sampler_log_probs"] - batch.responses["old_log_probs"])
    return {"sampler_gap": float(gap.max(initial=0.0))}
