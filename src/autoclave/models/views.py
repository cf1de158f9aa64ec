"""Weights taken over by a model without a copy: its parameters become the tensors that it is given."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from autoclave.core import InputError
from autoclave.core.json import nearest


def take_views(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Let `model` compute with `weights`, by the names of its `state_dict`; nothing changes unless all of them fit.

    A parameter becomes the given tensor itself where device, number format and layout are its own, else a converted
    copy. Parameters that are tied stay so; of their names one is enough. What was there before is let go and never
    written to, since it may be a view of memory that others read.

    Raises:
        InputError: a weight is missing, unknown, of another shape, or two different ones are given for tied names.
    """
    taken = _matched(model, weights)
    with torch.inference_mode(False), torch.no_grad():
        for own, given in taken:
            own.data = given.detach().to(device=own.device, dtype=own.dtype).contiguous()


def _matched(model: nn.Module, weights: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each tensor of the model, once, with the one that is to take its place."""
    names_of: dict[int, list[str]] = {}
    state = model.state_dict(keep_vars=True)
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
