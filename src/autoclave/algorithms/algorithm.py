"""An algorithm: a frozen, picklable set of pure functions, and the methods by which training uses it.

Training does not know which algorithm it runs. It calls, in this order:

    rollouts = algorithm.mask(rollouts)             mask rollouts that do not train
    columns = algorithm.prepare(columns)            advantages (N,) and weights (N,), before the step is split
    compute = algorithm.rows_to_compute(columns)    (B,), rows that need a forward pass
    columns = algorithm.correct(columns)            advantages, corrected for the log-prob mismatch
    columns = algorithm.trust(columns)              advantages, at the start of each optimizer step
    loss = algorithm.loss(columns)                  per micro-batch; losses of micro-batches add up
    state = algorithm.next_state(state, metrics)    coefficients that change from step to step

Data comes in named columns (`Column`; docs/reference/columns.md). The parameters of a function name the columns that it
reads. `reads`, all columns that an algorithm reads, decides what is computed, and so which workers a run has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

import torch
from torch import Tensor

from autoclave.algorithms.advantages import rows_with_signal
from autoclave.algorithms.columns import Column, ColumnFunction, Columns, read_columns, require_shape, require_wrapped
from autoclave.algorithms.control import Controller, Metrics, State
from autoclave.algorithms.diagnostics import Diagnostics, observe
from autoclave.algorithms.parts import Equation, LossTerm
from autoclave.core.errors import InputError
from autoclave.core.rollout import MaskReason, Rollout

RolloutFilter = Callable[[Sequence[Rollout]], tuple[Rollout, ...]]
AlgorithmState = Mapping[str, State]


_SCORES = frozenset({Column.OLD_LOG_PROBS, Column.REFERENCE_LOG_PROBS, Column.OLD_VALUES})
_COLLECTED = frozenset({*takewhile(lambda column: column is not Column.KL_COEFFICIENT, Column), Column.IN_BASELINE})
"""Columns that every batch has; the first equation may read these and `_SCORES`."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The share of a micro-batch in the loss of an optimizer step: `total` () carries the gradient."""

    total: Tensor
    diagnostics: Diagnostics


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Filters, advantage, weighting and loss terms. Stateless; equal inputs give equal outputs.

    Raises:
        ValueError: they do not fit together, or a function reads a column that it cannot have.
    """

    name: str
    advantage: tuple[Equation, ...]
    """Applied in order to a whole batch; at least one gives ADVANTAGES."""
    weighting: ColumnFunction[Tensor]
    """Gives (N,) float32 for the rows that train."""
    terms: tuple[LossTerm, ...]
    """At least one; the loss is their sum."""
    filters: tuple[RolloutFilter, ...] = ()
    """Applied in order; the first reason to mask a rollout stays."""
    critic_terms: tuple[LossTerm, ...] = ()
    """Terms of the critic's loss; empty without a critic."""
    correction: ColumnFunction[Tensor] | None = None
    """Gives IMPORTANCE (N,); advantages are multiplied by it."""
    trust_region: ColumnFunction[Tensor] | None = None
    """Gives (N,) at the start of each optimizer step, from all of its rows; advantages are multiplied by it."""
    controllers: tuple[Controller, ...] = ()
    """Coefficients that change from step to step."""
    include_masked_in_baseline: bool = False
    """Masked rows with a reward count in the baseline of their group."""
    max_resamples: int = 0
    """Dynamic sampling: how often a group with equal rewards is sampled again."""

    def __post_init__(self) -> None:
        self._require_types()
        screens = [equation for equation in self.advantage if equation.gives is Column.IN_LOSS]
        if Column.ADVANTAGES not in [equation.gives for equation in self.advantage]:
            raise ValueError(f"{self.name}: no equation gives advantages")
        if len(screens) > 1 or any(screen.mask_reason is None for screen in screens):
            raise ValueError(f"{self.name}: one equation may give in_loss, with its mask_reason")
        if screens and self.needs_log_probs:
            raise ValueError(
                f"{self.name}: rows are removed before forward passes, so no equation may read log-probs or values"
            )
        self._require_columns()

    def _require_types(self) -> None:
        kinds = {"advantage": Equation, "terms": LossTerm, "critic_terms": LossTerm, "controllers": Controller}
        for field, kind in kinds.items():
            given: Any = getattr(self, field)
            if not isinstance(given, tuple) or not all(isinstance(each, kind) for each in cast("Any", given)):
                raise ValueError(
                    f"{self.name}: {field} = {repr(getattr(self, field))[:120]}: must be a tuple of {kind.__name__}"
                )
        for field in ("weighting", "correction", "trust_region"):
            if getattr(self, field) is not None:
                require_wrapped(f"{self.name}: {field}", getattr(self, field))
        for names in ([term.name for term in terms] for terms in (self.terms, self.critic_terms)):
            if len(set(names)) < len(names):
                raise ValueError(f"{self.name}: loss terms {', '.join(names)}: each must have a name of its own")

    def _require_columns(self) -> None:
        steps = [(each.compute, each.gives) for each in self.advantage] + [(self.weighting, Column.WEIGHTS)]
        steps += [(self.correction, Column.IMPORTANCE)] if self.correction else []
        known = _COLLECTED | _SCORES | {Column(controller.gives) for controller in self.controllers}
        for function, gives in steps:
            function.require_known(self.name, known)
            known |= {gives}
        if self.trust_region:
            known |= {Column.STEP_LOG_PROBS}
            self.trust_region.require_known(self.name, known)
        of_tokens = {column for column in known if not column.is_per_row}
        for terms, predicted in (
            (self.terms, {Column.LOG_PROBS, Column.ENTROPY}),
            (self.critic_terms, {Column.VALUES}),
        ):
            for term in terms:
                term.compute.require_known(f"{self.name}: loss term {term.name}", of_tokens | predicted)

    @property
    def reads(self) -> frozenset[Column]:
        """Every column that a choice reads."""
        functions = (self.weighting, self.correction, self.trust_region)
        parts = [
            *(equation.compute.reads for equation in self.advantage),
            *(function.reads for function in functions if function),
            *(term.compute.reads for term in (*self.terms, *self.critic_terms)),
        ]
        return frozenset[Column]().union(*parts)

    @property
    def needs_reference(self) -> bool:
        """Log-probs of a reference policy are read."""
        return Column.REFERENCE_LOG_PROBS in self.reads

    @property
    def needs_critic(self) -> bool:
        """Values of a critic are read, and it is trained."""
        return Column.OLD_VALUES in self.reads

    @property
    def needs_entropy(self) -> bool:
        """Entropies that carry a gradient are read."""
        return Column.ENTROPY in self.reads

    @property
    def needs_log_probs(self) -> bool:
        """Advantages depend on what models say, so models must be asked before `prepare`."""
        return any(not _SCORES.isdisjoint(equation.compute.reads) for equation in self.advantage)

    @property
    def needs_old_log_probs(self) -> bool:
        """The policy's log-probs at the start are read before its update begins, or before an optimizer step."""
        functions = [self.correction, self.trust_region, *(equation.compute for equation in self.advantage)]
        return any(function and Column.OLD_LOG_PROBS in function.reads for function in functions)

    @property
    def discard_reason(self) -> MaskReason | None:
        """Reason of rows that `prepare` takes out of IN_LOSS; None if it takes out none."""
        return next((equation.mask_reason for equation in self.advantage if equation.gives is Column.IN_LOSS), None)

    def mask(self, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts of an optimizer step or more, in the same order, with a reason where one does not train."""
        masked = tuple(rollouts)
        for rollout_filter in self.filters:
            masked = rollout_filter(masked)
        return masked

    @torch.no_grad()
    def prepare(self, columns: Columns) -> dict[str, Tensor]:
        """`columns` with ADVANTAGES, WEIGHTS, IN_BASELINE and whatever else the equations give.

        With TERM each term of the objective is prepared as if the others were not there, so that it is normalised over
        its own rows, and multiplied by its TERM_WEIGHTS (Jiang et al., CodeRL+, equation 6: a sum of two expectations).

        Args:
            columns: of whole groups, and of all optimizer steps of a `learn` (MINIBATCH tells them apart; without it
                there is one). Rows in neither loss nor baseline may be missing, and may hold anything.

        Returns:
            ADVANTAGES are 0 for rows that do not train; WEIGHTS are those of each optimizer step and term by itself.

        Raises:
            InputError: a column is missing, columns do not fit each other, advantages are not finite although what they
                are computed from is, or weights are negative or of tokens that do not train.
        """
        term = columns.get(Column.TERM)
        if term is None or len(term) == 0:
            return self._prepared(columns)
        given = {Column.IN_LOSS, Column.IN_BASELINE, Column.WEIGHTS, *(each.gives for each in self.advantage)}
        found = dict(columns)
        for number in range(int(term.amax()) + 1):
            own = term == number
            if not own.any():
                continue
            part = self._prepared(_only(columns, own))
            for name in given:
                mask = own if name.is_per_row else own[columns[Column.ROW]]
                found[name] = torch.where(mask, part[name], found.get(name, torch.zeros_like(part[name])))
        return found

    def _prepared(self, columns: Columns) -> dict[str, Tensor]:
        found = dict(columns)
        for equation in self.advantage:
            found[Column.IN_BASELINE] = self.in_baseline(found)
            before = dict(found)
            found[equation.gives] = equation.computed(found)
            if not _is_finite(found, [Column.ADVANTAGES]) and _is_finite(before, equation.compute.reads):
                raise InputError(
                    f"{self.name}: {equation.compute.name} gives advantages that are not finite to rollouts that "
                    "train, although all that it reads of them is finite"
                )
        found[Column.IN_BASELINE] = self.in_baseline(found)
        trained = found[Column.IN_LOSS][found[Column.ROW]]
        found[Column.ADVANTAGES] = torch.where(trained, found[Column.ADVANTAGES], 0.0)
        found[Column.WEIGHTS] = self._weights(found)
        return found

    def in_baseline(self, columns: Columns) -> Tensor:
        """(B,) bool: rows that count in the baseline of their group, from REWARDS and IN_LOSS."""
        found = read_columns(columns, (Column.REWARDS, Column.IN_LOSS))
        return found["in_loss"] | found["rewards"].isfinite() if self.include_masked_in_baseline else found["in_loss"]

    def rows_to_compute(self, columns: Columns) -> Tensor:
        """(B,) bool: rows that need forward passes.

        Before `prepare`, all rows in loss or baseline; after it, the rows whose loss can have a gradient. Weights stay:
        a row without a forward pass still counts in the mean of the loss. Metrics are means over computed tokens.
        """
        in_loss = columns[Column.IN_LOSS]
        if Column.ADVANTAGES not in columns:
            return in_loss | self.in_baseline(columns)
        row = read_columns(columns, (Column.ROW,))["row"]
        moved = torch.zeros_like(in_loss)
        for term in self.terms:
            if term.skip_if_zero is None:
                return in_loss
            moved |= rows_with_signal(read_columns(columns, (term.skip_if_zero,))[term.skip_if_zero], row, in_loss)
        return moved

    @torch.no_grad()
    def correct(self, columns: Columns) -> dict[str, Tensor]:
        """`columns` with IMPORTANCE and ADVANTAGES multiplied by it; as they are without a correction.

        Reads ADVANTAGES and what `correction` reads, of whole rows.
        """
        if self.correction is None:
            return dict(columns)
        importance, advantages = self.correction(columns), columns[Column.ADVANTAGES]
        corrected = torch.where(advantages != 0, advantages * importance, 0.0)  # 0 x inf of a masked row is NaN
        return {**columns, Column.IMPORTANCE: importance, Column.ADVANTAGES: corrected}

    @torch.no_grad()
    def trust(self, columns: Columns) -> dict[str, Tensor]:
        """`columns` with ADVANTAGES as the optimizer step may use them.

        Reads ADVANTAGES and what `trust_region` reads, of all rows of the optimizer step.
        """
        if self.trust_region is None:
            return dict(columns)
        return {**columns, Column.ADVANTAGES: columns[Column.ADVANTAGES] * self.trust_region(columns)}

    def loss(self, columns: Columns, *, observed: Columns | None = None) -> StepLoss:
        """The share of some rows in the loss of their optimizer step.

            total = sum over terms, sum over tokens of weight x loss of the token

        Args:
            columns: `weights` and what the terms read, (N,) each, of whole rows. Tokens of weight 0 are not looked at:
                whatever they hold, their gradient is exactly 0.
            observed: more (N,) to be averaged over trained tokens, by the name of the metric.

        Returns:
            The total, which adds up over parts of a step to the same number for every split; and diagnostics for
            `step_metrics`: `loss`, `loss_<term>`, what the terms observe, and `observed`.

        Raises:
            InputError: a column is missing, or columns do not have one length.
        """
        return _step_loss(self.terms, columns, observed or {})

    def penalty_gradient(self, columns: Columns) -> Tensor:
        """Gradient (N,) of all terms but the first, the policy's own, by log-probs alone, apart from any graph."""
        log_probs = columns[Column.LOG_PROBS].detach().requires_grad_()
        if self.terms[1:]:
            apart = {name: values.detach() for name, values in columns.items()} | {Column.LOG_PROBS: log_probs}
            total = _step_loss(self.terms[1:], apart, {}).total
            if total.requires_grad:
                torch.autograd.backward([total])
        return torch.zeros_like(log_probs) if log_probs.grad is None else log_probs.grad

    def critic_loss(self, columns: Columns, *, observed: Columns | None = None) -> StepLoss:
        """The same for the critic, from its terms."""
        return _step_loss(self.critic_terms, columns, observed or {})

    @property
    def first_state(self) -> dict[str, State]:
        """The states of the controllers before the first step, by the name of the coefficient."""
        return {controller.gives.value: controller.start for controller in self.controllers}

    def next_state(self, state: AlgorithmState, metrics: Metrics) -> dict[str, State]:
        """The states after a step with these metrics."""
        return {
            controller.gives.value: controller.advance(state[controller.gives.value], metrics)
            for controller in self.controllers
        }

    def _weights(self, columns: Columns) -> Tensor:
        """(N,) float32: of each optimizer step by itself."""
        in_loss = columns[Column.IN_LOSS]
        minibatch = columns.get(Column.MINIBATCH, torch.zeros_like(in_loss, dtype=torch.int64))
        weights = torch.zeros(len(columns[Column.ROW]), device=in_loss.device)
        for number in range(int(minibatch.amax()) + 1 if len(minibatch) else 0):
            own = in_loss & (minibatch == number)
            shares = self.weighting({**columns, Column.IN_LOSS: own})
            require_shape(self.weighting.name, {Column.WEIGHTS: shares}, len(weights), "N")
            if (is_wrong := ~(shares >= 0) | ((shares != 0) & ~own[columns[Column.ROW]])).any():
                raise InputError(
                    f"{self.name}: {self.weighting.name} gives a token the weight {shares[is_wrong][0].item():g}; must "
                    "be 0 or more, and 0 where the rollout is not in_loss"
                )
            weights += shares
        factors = columns.get(Column.TERM_WEIGHTS)
        return weights if factors is None else weights * factors[columns[Column.ROW]].float()


def _step_loss(terms: Sequence[LossTerm], columns: Columns, observed: Columns) -> StepLoss:
    names = {Column.WEIGHTS}.union(*(term.compute.reads for term in terms))
    selected = _trained_tokens(read_columns(columns, names), columns[Column.WEIGHTS])
    means = _trained_tokens(observed, columns[Column.WEIGHTS])
    parts = {term.name: term.computed(selected) for term in terms}
    totals = {f"loss_{name}": (selected[Column.WEIGHTS] * part.loss).sum() for name, part in parts.items()}
    total = torch.stack(list(totals.values())).sum()
    means |= {name: values for part in parts.values() for name, values in part.means.items()}
    maxima = {name: values for part in parts.values() for name, values in part.maxima.items()}
    return StepLoss(total, observe({"loss": total} | totals, means, maxima))


def _is_finite(columns: Columns, names: Sequence[Column]) -> bool:
    """True if these columns, as far as they are there, are finite in all rows that train."""
    in_loss, row = columns[Column.IN_LOSS], columns[Column.ROW]
    found = (columns[name][in_loss if name.is_per_row else in_loss[row]] for name in names if name in columns)
    return all(bool(values.isfinite().all()) for values in found)


def _only(columns: Columns, own: Tensor) -> dict[str, Tensor]:
    """`columns` in which rows that are not `own` (B,) are in neither loss nor baseline."""
    rewards = columns[Column.REWARDS]
    return {
        **columns,
        Column.IN_LOSS: columns[Column.IN_LOSS] & own,
        Column.REWARDS: torch.where(own, rewards, torch.full_like(rewards, torch.nan)),
    }


def _trained_tokens(columns: Columns, weights: Tensor) -> dict[str, Tensor]:
    """Of each column the tokens that train; ValueError if one is not (N,)."""
    require_shape("the batch", columns, len(weights), "N")
    trained = weights > 0
    return {name: values[trained] for name, values in columns.items()}
