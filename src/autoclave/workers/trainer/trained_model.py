"""A model in training: micro-batches, the gradient of a step, its clipping, AdamW, and the course of its learning rate.

Knows no role: what a model predicts for a batch, and what loss that has, are handed in. Actor and critic use it alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autoclave.algorithms import Column, Diagnostics, StepLoss, step_metrics
from autoclave.config import OptimizerConfig
from autoclave.workers.batch import Batch
from autoclave.workers.trainer.finite import gradients_of, require_finite

_LOOK_AT_POLICY = "Go on from a checkpoint with a lower optimizer.learning_rate; policy/ratio_max shows the course."
_LOWER_LEARNING_RATE = "Go on from a checkpoint with a lower optimizer.learning_rate."

Predict = Callable[[Batch], Mapping[str, Tensor]]
"""From a micro-batch to columns (N,) on the model's device that carry gradients, by name."""
LossOf = Callable[[Mapping[str, Tensor]], StepLoss]
"""From all columns of a micro-batch to its share in the loss of the step."""


class TrainedModel:
    """`module`, its optimizer, and the course of its learning rate, which is planned over `total_steps`."""

    def __init__(
        self,
        module: nn.Module,
        settings: OptimizerConfig,
        *,
        total_steps: int,
        micro_batch_tokens: int,
        is_packed: bool = False,
    ) -> None:
        """`is_packed`: micro-batches are, so that they are cut by their tokens without padding."""
        self.module = module
        self._settings, self._total_steps, self._steps_taken = settings, total_steps, 0
        self._micro_batch_tokens, self._is_packed = micro_batch_tokens, is_packed
        self._optimizer = torch.optim.AdamW(
            module.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )

    def require_finite_columns(self, batch: Batch) -> None:
        """Check what trained tokens hold before an update reads it.

        Raises:
            FaultError: a column is not finite; the message names it and the optimizer step.
        """
        trained = batch.responses["weights"] > 0
        columns = {name: torch.from_numpy(column[trained]) for name, column in batch.responses.items()}
        require_finite(columns, f"before optimizer step {self._steps_taken + 1}", _LOOK_AT_POLICY)

    def step(self, batch: Batch, predict: Predict, loss_of: LossOf) -> dict[str, float]:
        """One optimizer step on all rows of `batch`; without rows, only the learning rate goes on.

        Returns:
            The metrics of the loss, `gradient_norm` before clipping, and `learning_rate`; empty without rows.

        Raises:
            FaultError: a loss or a gradient is not finite; the message names it, and the weights are as they were.
        """
        learning_rate = self._set_learning_rate()
        self._steps_taken += 1
        if not len(batch):
            return {}
        self._optimizer.zero_grad(set_to_none=True)
        pieces = batch.micro_batches(self._micro_batch_tokens, is_packed=self._is_packed)
        parts = (batch.select(rows) for rows in pieces)
        observed = [self._backward(part, predict, loss_of) for part in parts]
        norm = self._clip_gradients()
        self._optimizer.step()
        return step_metrics(observed) | {"gradient_norm": norm, "learning_rate": learning_rate}

    def _backward(self, part: Batch, predict: Predict, loss_of: LossOf) -> Diagnostics:
        """Add the gradient of a micro-batch."""
        predicted = predict(part)
        device = next(iter(predicted.values())).device
        known = {**part.responses, Column.ROW: part.response_rows}
        columns = {name: torch.from_numpy(column).to(device) for name, column in known.items()} | dict(predicted)
        loss = loss_of(columns)
        if not math.isfinite(loss.diagnostics.totals["loss"]):
            trained = columns[Column.WEIGHTS] > 0
            tensors = {name: column[trained] for name, column in columns.items()} | {"loss": loss.total}
            require_finite(tensors, f"optimizer step {self._steps_taken}", _LOOK_AT_POLICY)
        loss.total.backward()
        return loss.diagnostics

    def _clip_gradients(self) -> float:
        """The norm of the gradient before it is clipped, which must be finite: clipping would make all of it NaN."""
        gradients = gradients_of(self.module.named_parameters())
        norm = torch.nn.utils.get_total_norm(gradients.values())
        if not math.isfinite(norm):
            where = f"optimizer step {self._steps_taken}"
            require_finite(gradients | {"norm of the gradient": norm}, where, _LOWER_LEARNING_RATE)
        torch.nn.utils.clip_grads_with_norm_(self.module.parameters(), self._settings.gradient_clip, norm)
        return norm.item()

    def _set_learning_rate(self) -> float:
        share = learning_rate_share(self._settings, self._steps_taken, self._total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * share
        return self._settings.learning_rate * share

    def optimizer_state(self) -> dict[str, Any]:
        """The state of the optimizer, and how many steps were taken."""
        return {"optimizer": self._optimizer.state_dict(), "steps": self._steps_taken}

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `optimizer_state` gave."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._steps_taken = state["steps"]


def in_minibatches(batch: Batch, minibatches: int) -> list[Batch]:
    """The rows of each optimizer step, as the column `minibatch` says."""
    return [batch.select(batch.rows["minibatch"] == number) for number in range(minibatches)]


def mean_over_steps(steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Means of the metrics over the steps that were taken; steps without metrics were not."""
    taken = [metrics for metrics in steps if metrics]
    return {name: math.fsum(step[name] for step in taken) / len(taken) for name in (taken[0] if taken else {})}


def learning_rate_share(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """The learning rate of optimizer step `step` (from 0), as a share of the peak.

    A linear rise over the warm-up, then the decay, which would reach `final_fraction` at `total_steps`.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    left = {"none": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.decay]
    return config.final_fraction + (1 - config.final_fraction) * left
