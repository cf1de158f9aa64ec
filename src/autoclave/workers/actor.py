"""The worker that holds the policy in training: log-probs, updates, weights out, state in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column, Diagnostics, step_metrics
from autoclave.config import OptimizerConfig
from autoclave.core import AutoclaveError
from autoclave.models import Policy, response_scores, save_policy
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register


class ActorWorker:
    """The policy, its optimizer and its learning-rate schedule.

    `total_steps` is the number of optimizer steps of the whole run, which the learning rate is planned over.
    """

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
        self._gradient_clip = optimizer.gradient_clip
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=optimizer.learning_rate,
            betas=optimizer.betas,
            weight_decay=optimizer.weight_decay,
        )
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, learning_rate_course(optimizer, total_steps)
        )

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `old_log_probs` (N,) float32 of the policy as it is now."""
        column = np.zeros(len(batch.response_rows), dtype=np.float32)
        with torch.no_grad():
            for rows in batch.micro_batches(self._micro_batch_tokens):
                column[batch.response_index(rows)] = self._scores(batch.select(rows))[0].cpu().numpy()
        return batch.with_responses(old_log_probs=column)

    @register(Dispatch.ONE_TO_ALL)
    def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step for each minibatch of `batch`, in order.

        Reads `old_log_probs`, `advantages`, `weights`, and what else the algorithm names.

        Returns:
            Metrics, means over the optimizer steps.
        """
        steps = [self._step(batch.select(batch.rows["minibatch"] == i)) for i in sorted(set(batch.rows["minibatch"]))]
        return {name: math.fsum(step[name] for step in steps) / len(steps) for name in steps[0]} if steps else {}

    def _step(self, batch: Batch) -> dict[str, float]:
        self._optimizer.zero_grad(set_to_none=True)
        observed: list[Diagnostics] = []
        entropy_sum = 0.0
        for rows in batch.micro_batches(self._micro_batch_tokens):
            part = batch.select(rows)
            log_probs, entropy = self._scores(part, entropy_gradient=self._algorithm.needs_entropy)
            columns = {name: torch.from_numpy(part.responses[name]).to(log_probs.device) for name in part.responses}
            loss = self._algorithm.loss(columns | {Column.LOG_PROBS: log_probs, Column.ENTROPY: entropy})
            loss.total.backward()
            observed.append(loss.diagnostics)
            entropy_sum += entropy.detach().sum().item()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._gradient_clip).item()
        if not math.isfinite(norm):
            raise AutoclaveError(f"the gradient norm is {norm}; the update was not applied. Lower the learning rate")
        learning_rate = self._scheduler.get_last_lr()[0]
        self._optimizer.step()
        self._scheduler.step()
        tokens = max(1, len(batch.response_rows))
        return step_metrics(observed) | {
            "entropy": entropy_sum / tokens,
            "gradient_norm": norm,
            "learning_rate": learning_rate,
        }

    def _scores(self, batch: Batch, *, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        ids, attention, response = (torch.from_numpy(array).to(self._model.device) for array in batch.padded())
        return response_scores(
            self._model,
            ids,
            attention,
            response,
            temperature=self._temperature,
            entropy_gradient=entropy_gradient,
        )

    @register(Dispatch.ONE_TO_ALL)
    def export_weights(self) -> Mapping[str, Tensor]:
        """A copy of the weights by name, as they are now."""
        return {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}

    @register(Dispatch.ONE_TO_ALL)
    def save(self, folder: Path) -> None:
        """Write weights and tokenizer to `folder/model`, optimizer and schedule to `folder/optimizer.pt`."""
        save_policy(self._policy, folder / "model")
        state = {"optimizer": self._optimizer.state_dict(), "scheduler": self._scheduler.state_dict()}
        torch.save(state, folder / "optimizer.pt")

    @register(Dispatch.ONE_TO_ALL)
    def load(self, folder: Path) -> None:
        """Restore what `save` wrote; the weights themselves were loaded with the policy."""
        state = torch.load(folder / "optimizer.pt", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._scheduler.load_state_dict(state["scheduler"])


def learning_rate_course(config: OptimizerConfig, total_steps: int) -> Callable[[int], float]:
    """The learning rate after a number of optimizer steps, as a share of the peak.

    Linear rise over the warm-up, then the decay, which reaches `final_fraction` at `total_steps`.
    """

    def share(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / config.warmup_steps
        progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
        left = {"none": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.decay]
        return config.final_fraction + (1 - config.final_fraction) * left

    return share
