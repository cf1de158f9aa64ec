"""A model in training: micro-batches, the gradient of a step, its clipping, AdamW, and the course of its learning rate.

Knows no role: what a model predicts for a batch, and what loss that has, are handed in. Actor and critic use it alike.
"""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from autoclave.algorithms import Column, Diagnostics, StepLoss, step_metrics
from autoclave.config import OptimizerConfig, TrainerConfig
from autoclave.core import FaultError
from autoclave.models import Layout
from autoclave.workers.batch import Batch
from autoclave.workers.trainer.peers import FILLER, gather, missing_passes, raise_together, require_process_group
from autoclave.workers.trainer.sharding import PLAIN, hold, reduce_at_last, whole

Predict = Callable[[Batch], Mapping[str, Tensor]]
"""From a micro-batch to columns (N,) on the model's device that carry gradients, by name."""
LossOf = Callable[[Mapping[str, Tensor]], StepLoss]
"""From all columns of a micro-batch to its share in the loss of the step."""


class TrainedModel:
    """`module`, its optimizer, and the course of its learning rate, which is planned over `total_steps`.

    On several ranks each has rows of its own, and all make each call; weights, metrics and what is raised are the same
    on all of them, whatever the split.
    """

    def __init__(
        self,
        module: nn.Module,
        settings: OptimizerConfig,
        *,
        total_steps: int,
        micro_batch_tokens: int,
        setting: str = "optimizer",
        layout: Layout = "padded",
        trainer: TrainerConfig = PLAIN,
        device: torch.device | None = None,
    ) -> None:
        """Take `module` from the memory of the host to `device`, as `trainer` says; without a device it stays there.

        `setting` is where `settings` stand in a recipe, for messages. `layout` is that of micro-batches, which are
        cut by it.

        Raises ConfigError, HostError, InputError: as `sharding.hold`.
        """
        require_process_group()
        hold(module, trainer, device or next(module.parameters()).device)
        self.module = module
        self._lower_rate = (
            f"Go on from a checkpoint with a lower {setting}.learning_rate; the metric policy/ratio_max shows when it "
            "began."
        )
        self._settings, self._total_steps, self.steps_taken = settings, total_steps, 0
        self._micro_batch_tokens = micro_batch_tokens
        self._layout: Layout = layout
        self._remembered: list[Tensor] | None = None
        self.optimizer = torch.optim.AdamW(
            self._learning(), lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )

    def remember(self) -> None:
        """Keep a copy of the weights that learn as they are now, unless one is kept already."""
        if self._remembered is None:
            self._remembered = [weights.detach().clone() for weights in self._learning()]

    def forget(self) -> None:
        self._remembered = None

    @property
    def remembers(self) -> bool:
        return self._remembered is not None

    @contextmanager
    def as_remembered(self) -> Generator[None]:
        """Within the block the model has the weights of that copy, if there is one."""
        if self._remembered is None:
            yield
            return
        now = [weights.detach().clone() for weights in self._learning()]
        try:
            self._set(self._remembered)
            yield
        finally:
            self._set(now)

    def _learning(self) -> list[nn.Parameter]:
        return [weights for weights in self.module.parameters() if weights.requires_grad]

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for weights, value in zip(self._learning(), values, strict=True):
            weights.copy_(value)

    def require_finite_columns(self, batch: Batch) -> None:
        """Check what trained tokens hold before an update reads it.

        Raises FaultError: a column is not finite; the message names it and the optimizer step.
        """
        trained = batch.responses["weights"] > 0
        columns = {name: torch.from_numpy(column[trained]) for name, column in batch.responses.items()}
        step = self.steps_taken + 1
        raise_together(complaint_of(lambda: require_finite(columns, f"before optimizer step {step}", self._fix(step))))

    def step(self, batch: Batch, predict: Predict, loss_of: LossOf) -> dict[str, float]:
        """One optimizer step on all rows of `batch`; without rows, only the learning rate goes on.

        Returns:
            The metrics of the loss, `gradient_norm` before clipping, `learning_rate`, and those of `take_step`; empty
            without rows.

        Raises:
            FaultError: a loss or a gradient is not finite; the message names it, and the weights are as they were.
        """
        learning_rate = self._set_learning_rate()
        self.steps_taken += 1
        pieces = batch.micro_batches(self._micro_batch_tokens, self._layout)
        parts = [batch.select(rows) for rows in pieces]
        fillers = missing_passes(len(parts))
        if not parts and not fillers:
            return {}
        try:
            observed = self._make_gradients(parts, fillers, predict, loss_of)
            norm = self._clip_gradients()
            moved = take_step(self._learning(), self.optimizer.step)
            self._require_finite_weights()
        finally:
            self.optimizer.zero_grad(set_to_none=True)  # or they would stay while others need the memory
        return step_metrics(observed) | {"gradient_norm": norm, "learning_rate": learning_rate} | moved

    def _make_gradients(
        self, parts: Sequence[Batch], fillers: int, predict: Predict, loss_of: LossOf
    ) -> list[Diagnostics]:
        """The gradients of the step; what was observed on all ranks.

        A rank that finds a loss that is not finite goes on, since the others wait for it in every pass.
        """
        observed: list[Diagnostics] = []
        error: FaultError | None = None
        for number in range(len(parts) + fillers):
            reduce_at_last(self.module, number + 1 == len(parts) + fillers)
            if number >= len(parts):
                _backward_of_nothing(predict)
                continue
            loss, columns = self._loss(parts[number], predict, loss_of)
            error = error or complaint_of(lambda loss=loss, columns=columns: self._require_finite(loss, columns))
            loss.total.backward()
            observed.append(loss.diagnostics)
        raise_together(error)
        return [each for of_rank in gather(observed) for each in of_rank]

    def _loss(self, part: Batch, predict: Predict, loss_of: LossOf) -> tuple[StepLoss, dict[str, Tensor]]:
        """The share of a micro-batch in the loss of the step, and all columns that it came from."""
        predicted = predict(part)
        device = next(iter(predicted.values())).device
        known = {**part.responses, Column.ROW: part.response_rows}
        columns = {name: torch.from_numpy(column).to(device) for name, column in known.items()} | dict(predicted)
        return loss_of(columns), columns

    def _require_finite(self, loss: StepLoss, columns: Mapping[str, Tensor]) -> None:
        if not math.isfinite(loss.diagnostics.totals["loss"]):
            trained = columns[Column.WEIGHTS] > 0
            tensors = {name: column[trained] for name, column in columns.items()} | {"loss": loss.total}
            require_finite(tensors, f"optimizer step {self.steps_taken}", self._fix(self.steps_taken))

    def _fix(self, step: int) -> str:
        cause = "The weights were those of the start, so the algorithm or a number format made them so."
        return f"No weight of that step was overwritten. {self._lower_rate if step > 1 else cause}"

    def _require_finite_weights(self) -> None:
        """Check the weights that the optimizer step has made."""
        weights = {name: each.detach() for name, each in self.module.named_parameters() if each.requires_grad}
        norm = whole(torch.nn.utils.get_total_norm(weights.values()))
        if not math.isfinite(norm):
            fix = f"The step itself made them so, and nothing was published. {self._lower_rate}"
            require_finite(weights, f"after optimizer step {self.steps_taken}", fix)

    def _clip_gradients(self) -> float:
        """The norm of the gradient before it is clipped, which must be finite: clipping would make all of it NaN."""
        gradients = gradients_of(self.module.named_parameters())
        norm = torch.nn.utils.get_total_norm(gradients.values())
        whole_norm = whole(norm)  # the same on all ranks
        if not math.isfinite(whole_norm):
            where = f"optimizer step {self.steps_taken}"
            require_finite(gradients | {"norm of the gradient": whole_norm}, where, self._fix(self.steps_taken))
        torch.nn.utils.clip_grads_with_norm_(self.module.parameters(), self._settings.gradient_clip, norm)
        return whole_norm.item()

    def _set_learning_rate(self) -> float:
        share = learning_rate_share(self._settings, self.steps_taken, self._total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * share
        return self._settings.learning_rate * share


def _backward_of_nothing(predict: Predict) -> None:
    """A forward and backward pass whose gradients are 0, beside those of ranks that have more rows."""
    predicted = [tensor for tensor in predict(FILLER).values() if tensor.requires_grad]
    torch.stack([(0 * tensor).sum() for tensor in predicted]).sum().backward()


def in_minibatches(batch: Batch, minibatches: int) -> list[Batch]:
    """The rows of each optimizer step, as the column `minibatch` says."""
    return [batch.select(batch.rows["minibatch"] == number) for number in range(minibatches)]


def mean_over_steps(steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Means of the metrics, each over the steps that have it; steps that were not taken have none."""
    found: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            found.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def learning_rate_share(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """The learning rate of optimizer step `step` (from 0), as a share of the peak.

    A linear rise over the warm-up, then the decay, which would reach `final_fraction` at `total_steps`.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    left = {"none": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.decay]
    return config.final_fraction + (1 - config.final_fraction) * left


SAMPLE = 4096
"""Weights of each tensor that are compared, evenly spaced."""


@torch.no_grad()
def take_step(parameters: Iterable[Tensor], step: Callable[[], object]) -> dict[str, float]:
    """Take the optimizer step, and measure what it does to the weights that have a gradient. Of all ranks.

    Returns:
        `relative_update`, the norm of the change over the norm of the weights, and `changed_share`, the share of the
        weights that the number format lets change; 0 and 1 if no weight has a gradient.
    """
    pairs = [(_sample(p), _sample(p.grad) != 0) for p in parameters if p.grad is not None]
    before = [weights[moves].double() for weights, moves in pairs]
    step()
    change, size, changed, count = 0.0, 0.0, 0, 0
    if before:
        was = torch.cat(before)
        now = torch.cat([weights[moves].double() for weights, moves in pairs])
        numbers = torch.stack([(now - was).square().sum(), was.square().sum(), (now != was).sum().double()])
        change, size, changed = numbers.tolist()
        count = len(was)
    change, size, changed, count = map(sum, zip(*gather((change, size, changed, count)), strict=True))
    relative = math.sqrt(change / size) if size else 0.0
    return {"relative_update": relative, "changed_share": changed / count if count else 1.0}


def _sample(tensor: Tensor) -> Tensor:
    """A view of some of the numbers of a tensor, or of the part of it that this rank holds."""
    flat = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().reshape(-1)
    return flat[:: max(1, len(flat) // SAMPLE)]


NAMED = 3
"""Tensors that a message names; when one gradient is not finite, most are not."""


def require_finite(tensors: Mapping[str, Tensor], where: str, fix: str) -> None:
    """Raise unless every number of every tensor is finite. Of all ranks, if tensors are sharded.

    Raises FaultError: some are not; the message begins with `where`, names the first tensors and how many of their
    numbers are not finite, and ends with `fix`.
    """
    found = [(name, tensor, int(whole((~torch.isfinite(tensor)).sum()))) for name, tensor in tensors.items()]
    bad = [f"{name} ({count} of {tensor.numel()})" for name, tensor, count in found if count]
    if bad:
        more = f" and {len(bad) - NAMED} more tensors" if len(bad) > NAMED else ""
        raise FaultError(f"{where}: not finite: {', '.join(bad[:NAMED])}{more}. {fix}")


def complaint_of(check: Callable[[], None]) -> FaultError | None:
    """Error that `check` raises, for ranks that must raise together."""
    try:
        check()
    except FaultError as error:
        return error
    return None


def gradients_of(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {f"gradient of {name}": weights.grad for name, weights in named_parameters if weights.grad is not None}
