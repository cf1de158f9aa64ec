"""Result of a `learn`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoclave.algorithms import LedgerEntry
from autoclave.core import Group
from autoclave.core.rollout import FloatArray
from autoclave.planning.accounting import NOTHING, SequenceLengths

LARGEST = {"log_prob_mismatch", "mismatch/max"}


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of one `learn`: its groups with mask reasons, the account of each rollout in order, and metrics."""

    groups: Sequence[Group]
    ledger: Sequence[LedgerEntry]
    metrics: Mapping[str, float]
    log_probs: Sequence[FloatArray | None]
    """Of each rollout in order: (T,) of its tokens under the policy at the start; None if they were not computed."""
    computed: SequenceLengths = NOTHING
    """Of the rollouts that were scored and learnt from."""


def joined(parts: Sequence[Learned]) -> Learned:
    """All of several: groups one after the other; of each metric the mean over the parts that have it.

    Of those in `LARGEST`, which are the largest of a `learn`, the largest.
    """
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    found = {name: [part.metrics[name] for part in parts if name in part.metrics] for name in names}
    return Learned(
        groups=[group for part in parts for group in part.groups],
        ledger=[entry for part in parts for entry in part.ledger],
        metrics={name: float((np.max if name in LARGEST else np.mean)(values)) for name, values in found.items()},
        log_probs=[log_probs for part in parts for log_probs in part.log_probs],
        computed=SequenceLengths(
            np.concatenate([part.computed.whole for part in parts]),
            np.concatenate([part.computed.response for part in parts]),
        ),
    )
