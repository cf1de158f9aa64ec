"""Weights taken over by a model without a copy, as the tensors that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autoclave.core import InputError
from autoclave.core.json import nearest
from autoclave.models.lora import is_of_adapter

REMEMBERED = 2
"""Sets of weights of which it is remembered where they belong: a publisher writes two in turn."""


class WeightViews:
    """Lets `model` compute with weights that it is given. The same tensors, given again, are taken over quickly."""

    def __init__(self, model: nn.Module, *, adapter_only: bool = False) -> None:
        """With `adapter_only` the matrices of its adapters alone are given; all else stays as it is."""
        self._model, self._adapter_only = model, adapter_only
        self._known: list[_Fitting] = []

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Compute with `weights`, by the names of the model's `state_dict`; nothing changes unless all of them fit.

        A parameter becomes the given tensor itself where device, number format and layout are its own, else a
        converted copy. Parameters that are tied stay so; of their names one is enough. What was there before is let
        go and never written to, since it may be a view of memory that others read.

        Raises:
            InputError: a weight is missing, unknown, of another shape, or two different ones are given for tied names.
        """
        fitting = next((known for known in self._known if known.is_of(weights)), None)
        with torch.inference_mode(False), torch.no_grad():
            if fitting is None:
                state = self._model.state_dict(keep_vars=True)
                if self._adapter_only:
                    state = {name: own for name, own in state.items() if is_of_adapter(name)}
                pairs = [(own, _as(given, own)) for own, given in _matched(state, weights)]
                fitting = _Fitting(dict(weights), pairs)
                if fitting.is_of_views:
                    self._known = [*self._known, fitting][-REMEMBERED:]
            for own, tensor in fitting.pairs:
                own.data = tensor


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Weights, and each tensor of the model, once, with the one that takes its place."""

    weights: Mapping[str, Tensor]
    pairs: Sequence[tuple[Tensor, Tensor]]

    def is_of(self, weights: Mapping[str, Tensor]) -> bool:
        own = self.weights
        return len(weights) == len(own) and all(weights.get(name) is tensor for name, tensor in own.items())

    @property
    def is_of_views(self) -> bool:
        """True if no tensor is a copy, which would not show what is written to the weights later."""
        places = {tensor.data_ptr() for tensor in self.weights.values()}
        return all(tensor.data_ptr() in places for _, tensor in self.pairs)


def _as(given: Tensor, own: Tensor) -> Tensor:
    return given.detach().to(device=own.device, dtype=own.dtype).contiguous()


def _matched(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each tensor of `state`, once, with the one that is to take its place."""
    names_of: dict[int, list[str]] = {}
    for name, own in state.items():
        names_of.setdefault(id(own), []).append(name)
    for name in weights:
        if name not in state:
            raise InputError(f"published weight {name!r}: the sampler's model has none; {nearest(name, list(state))}")
    return [(state[names[0]], _given(state[names[0]], names, weights)) for names in names_of.values()]


def _given(own: Tensor, names: list[str], weights: Mapping[str, Tensor]) -> Tensor:
    found = [name for name in names if name in weights]
    if not found:
        raise InputError(f"{names[0]!r}: this weight of the sampler's model was not published")
    given = weights[found[0]]
    for name in found:
        if weights[name].shape != own.shape:
            raise InputError(
                f"published weight {name!r}: shape {tuple(weights[name].shape)}, the sampler's model has "
                f"{tuple(own.shape)}; trainer and sampler must hold the same architecture"
            )
        if not _is_same(weights[name], given):
            raise InputError(f"{found[0]!r} and {name!r} are one weight in the sampler's model, and two were published")
    return given


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one is other or one.data_ptr() == other.data_ptr() or torch.equal(one, other)
