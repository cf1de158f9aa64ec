"""Columns of a packed batch, and functions whose parameters name the columns that they read."""

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast, get_origin, get_type_hints

from torch import Tensor

from autoclave.algorithms.packed import require_choice
from autoclave.core.errors import InputError

Result = TypeVar("Result")
Columns = Mapping[str, Tensor]


class Column(StrEnum):
    """The columns of a packed batch that algorithms read. Functions that read a column have a parameter of its name."""

    # Written when a batch is made of its rollouts.
    REWARDS = "rewards"
    """(B,) float: reward of the rollout; arbitrary, NaN included, without a verdict."""
    GROUP = "group"
    """(B,) int64: number of the row's group; rewards within a group are compared."""
    MINIBATCH = "minibatch"
    """(B,) int64: number of the row's optimizer step; groups are not split."""
    LENGTH_LIMITS = "length_limits"
    """(B,) int64: most tokens that the row could have had, in all turns."""
    IN_LOSS = "in_loss"
    """(B,) bool: the row is not masked."""
    ROW = "row"
    """(N,) int64: the rollout of each token, as an index into (B,) columns. The tokens of a row are in order."""
    TURN = "turn"
    """(N,) int64: number of the token's turn in its rollout, from 0 on."""
    SAMPLER_LOG_PROBS = "sampler_log_probs"
    """(N,) float: log-probs of the sampled tokens, as the sampler computed them."""

    TERM = "term"
    """(B,) int64: number of the row's task; each task is a term of the objective with its own mean. Optional."""
    TERM_WEIGHTS = "term_weights"
    """(B,) float: factor of the row's term. Optional."""

    # Written by controllers: one number for all tokens of a step.
    KL_COEFFICIENT = "kl_coefficient"
    """(N,) float: reward subtracted per nat of KL to the reference."""
    ENTROPY_COEFFICIENT = "entropy_coefficient"
    """(N,) float: loss subtracted per nat of entropy."""

    # Written by forward passes before the update.
    OLD_LOG_PROBS = "old_log_probs"
    """(N,) float: log-probs of the policy before the update, at the sampling temperature."""
    REFERENCE_LOG_PROBS = "reference_log_probs"
    """(N,) float: log-probs of the reference policy, at the sampling temperature."""
    OLD_VALUES = "old_values"
    """(N,) float: value of the state before each token, by the critic before the update."""

    # Written by the algorithm.
    IN_BASELINE = "in_baseline"
    """(B,) bool: the row counts in the baseline of its group."""
    KL = "kl"
    """(N,) float, nats: KL(policy || reference) at each token, estimated."""
    TOKEN_REWARDS = "token_rewards"
    """(N,) float: reward at each token."""
    ADVANTAGES = "advantages"
    """(N,) float: how much better than the baseline the token's rollout did."""
    RETURNS = "returns"
    """(N,) float: target of the critic's values."""
    WEIGHTS = "weights"
    """(N,) float32: share of each token in the loss; 0 where a token does not train."""
    IMPORTANCE = "importance"
    """(N,) float: importance ratio trainer / sampler, a factor of the advantages."""

    # Written by forward passes during the update.
    STEP_LOG_PROBS = "step_log_probs"
    """(N,) float: log-probs of the policy at the start of the optimizer step."""
    LOG_PROBS = "log_probs"
    """(N,) float: log-probs of the policy; carries the gradient."""
    ENTROPY = "entropy"
    """(N,) float, nats: entropy of the policy; carries the gradient."""
    VALUES = "values"
    """(N,) float: values of the critic; carries the gradient."""

    @property
    def is_per_row(self) -> bool:
        """True if the column has shape (B,), False if (N,)."""
        return self in _PER_ROW


_PER_ROW = frozenset(
    map(Column, ["rewards", "group", "minibatch", "term", "term_weights", "length_limits", "in_loss", "in_baseline"])
)


@dataclass(frozen=True, slots=True)
class ColumnFunction(Generic[Result]):
    """A pure function with its options bound (`functools.partial`); its other parameters name the columns it reads.

    Raises:
        ValueError: a parameter that is not bound names no column, or a bound one is a `Literal` without that value.
    """

    function: Callable[..., Result]
    reads: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.function).parameters
        names = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
        for name in sorted(set(names) - set(Column)):
            similar = difflib.get_close_matches(name, Column, 1)
            hint = f"did you mean {similar[0]}?" if similar else f"columns are {', '.join(Column)}."
            raise ValueError(
                f"{self.name}: parameter {name}: no such column; {hint} Options: bind with functools.partial"
            )
        if optional := sorted(set(parameters) & set(Column) - set(names)):
            raise ValueError(f"{self.name}: parameter {optional[0]}: a column has no default. Fix: remove the default")
        for name, hint in _hints(self.function).items():
            if get_origin(hint) is Literal and name in parameters:
                require_choice(f"{self.name}: {name}", parameters[name].default, hint)
        object.__setattr__(self, "reads", tuple(Column(name) for name in names))

    @property
    def name(self) -> str:
        """Name of the function, for messages."""
        function = _unbound(self.function)
        return getattr(function, "__name__", str(function))

    def require_known(self, place: str, known: Collection[Column]) -> None:
        """Raise ValueError if it reads a column that is not `known`."""
        if unknown := sorted(set(self.reads) - set(known)):
            raise ValueError(
                f"{place}: {self.name} reads {', '.join(unknown)}, which it cannot have there; "
                f"it may read {', '.join(sorted(known))}"
            )

    def __call__(self, columns: Columns) -> Result:
        """Call the function.

        Raises:
            InputError: a column that it reads is missing.
        """
        return self.function(**read_columns(columns, self.reads))


def require_wrapped(place: str, function: object) -> None:
    """Raise ValueError unless `function` is a `ColumnFunction`."""
    if not isinstance(function, ColumnFunction):
        name = getattr(_unbound(function), "__name__", str(function))
        raise ValueError(f"{place} is {name}; must be a ColumnFunction. Fix: ColumnFunction({name})")


def _unbound(function: object) -> object:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def _hints(function: object) -> dict[str, Any]:
    """Return the types of the parameters; empty where annotations name what only type checkers import."""
    try:
        return get_type_hints(_unbound(function))
    except (NameError, TypeError, AttributeError):
        return {}


def read_columns(columns: Columns, names: Collection[Column]) -> dict[str, Tensor]:
    """The columns of these names; InputError if one is missing."""
    missing = sorted({name.value for name in names if name not in columns})
    if missing:
        raise InputError(f"the batch lacks {', '.join(missing)}; it has {', '.join(sorted(columns))}")
    return {name.value: columns[name] for name in names}


def require_shape(place: str, tensors: Mapping[str, object], size: int, letter: str) -> None:
    """Raise InputError if one of `tensors`, by name, is not a tensor (size,)."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{place}: {name} is a {type(tensor).__name__}; must be a tensor ({letter},) = ({size},)")
        if (shape := tuple(tensor.shape)) != (size,):
            raise InputError(f"{place}: {name} has shape {shape}; must be ({letter},) = ({size},)")
