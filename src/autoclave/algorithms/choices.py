"""From the settings of an algorithm to the algorithm. The only place that knows all of ours.

One of another package is found by its entry point in `autoclave.algorithms`, under the name that its settings have in
`autoclave.algorithm_settings`: a function from those settings to an `Algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from autoclave.algorithms.algorithm import Algorithm
from autoclave.algorithms.cispo import cispo
from autoclave.algorithms.dapo import dapo
from autoclave.algorithms.dr_grpo import dr_grpo
from autoclave.algorithms.grpo import grpo
from autoclave.algorithms.grpo_plus import grpo_plus
from autoclave.algorithms.gspo import gspo
from autoclave.algorithms.ppo import ppo
from autoclave.algorithms.reinforce_plus_plus import reinforce_plus_plus
from autoclave.algorithms.rloo import rloo
from autoclave.config.algorithm import AlgorithmSettings
from autoclave.core.errors import ConfigError

ENTRY_POINTS = "autoclave.algorithms"

CHOICES: dict[str, Callable[[Any], Algorithm]] = {
    choice.__name__: choice for choice in (ppo, grpo, grpo_plus, dapo, dr_grpo, rloo, reinforce_plus_plus, gspo, cispo)
}


def build_algorithm(config: AlgorithmSettings) -> Algorithm:
    """The algorithm that the settings name, with their options bound. It pickles, and holds no tensors.

    Raises:
        ConfigError: a package brings settings of this name, but no algorithm.
    """
    build = CHOICES.get(config.name) or _installed(config.name)
    return build(config)


def _installed(name: str) -> Callable[[Any], Algorithm]:
    try:
        (entry,) = entry_points(group=ENTRY_POINTS, name=name)
        return entry.load()
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(
            f"algorithm.name = {name}: its package must have one entry point {name} in {ENTRY_POINTS} ({error})"
        ) from error
