"""Parts of an `Algorithm`: equations between columns, and summands of a loss."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from autoclave.algorithms.columns import Column, ColumnFunction, Columns, require_shape, require_wrapped
from autoclave.algorithms.losses import TokenLoss
from autoclave.core.errors import InputError
from autoclave.core.rollout import MaskReason


@dataclass(frozen=True, slots=True)
class Equation:
    """Computes the column `gives` from others. One that gives IN_LOSS only removes rows from it, for `mask_reason`."""

    gives: Column
    compute: ColumnFunction[Tensor]
    mask_reason: MaskReason | None = None

    def __post_init__(self) -> None:
        require_wrapped(f"equation of {self.gives}", self.compute)

    def computed(self, columns: Columns) -> Tensor:
        """Return the column `gives`.

        Raises:
            InputError: a column that it reads is missing, or the result is not a tensor of the column's shape.
        """
        result = self.compute(columns)
        size, letter = (len(columns[Column.IN_LOSS]), "B") if self.gives.is_per_row else (len(columns[Column.ROW]), "N")
        require_shape(self.compute.name, {self.gives: result}, size, letter)
        return result


@dataclass(frozen=True, slots=True)
class LossTerm:
    """A summand of a loss. It reads (N,) columns only, and gets only the tokens that train."""

    name: str
    """The metric `loss_<name>` is its total."""
    compute: ColumnFunction[TokenLoss]
    skip_if_zero: Column | None = None
    """A row in which this column is 0 at all tokens has no loss here; if so in all terms, it needs no forward pass."""

    def __post_init__(self) -> None:
        require_wrapped(f"loss term {self.name}", self.compute)

    def computed(self, columns: Columns) -> TokenLoss:
        """Return the loss of each token.

        Raises:
            InputError: a column that it reads is missing, or the result is not a `TokenLoss` of columns (N,).
        """
        part = cast("object", self.compute(columns))  # of another package, perhaps
        place = f"{self.compute.name}: loss term {self.name}"
        if not isinstance(part, TokenLoss):
            raise InputError(f"{place} gives a {type(part).__name__}. Fix: return TokenLoss(loss), with loss (N,)")
        tensors = {"loss": part.loss, **part.means, **part.maxima}
        require_shape(place, tensors, len(columns[Column.WEIGHTS]), "N")
        return part
