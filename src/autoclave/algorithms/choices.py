"""From the settings of an algorithm to the algorithm. The only place that knows all of ours.

One of another package is found by its entry point in `autoclave.algorithms`, under the name that its settings have in
`autoclave.algorithm_settings`: a function from those settings to an `Algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoclave.algorithms.algorithm import Algorithm
from autoclave.algorithms.cispo import cispo
from autoclave.algorithms.dapo import dapo
from autoclave.algorithms.dr_grpo import dr_grpo
from autoclave.algorithms.estimators import with_estimator
from autoclave.algorithms.grpo import grpo
from autoclave.algorithms.grpo_plus import grpo_plus
from autoclave.algorithms.gspo import gspo
from autoclave.algorithms.ppo import ppo
from autoclave.algorithms.reinforce_plus_plus import reinforce_plus_plus
from autoclave.algorithms.rloo import rloo
from autoclave.config.algorithm import AlgorithmSettings, ExchangeableAdvantage
from autoclave.core.errors import ConfigError
from autoclave.core.plugins import find_plugin

CHOICES: dict[str, Callable[[Any], Algorithm]] = {
    choice.__name__: choice for choice in (ppo, grpo, grpo_plus, dapo, dr_grpo, rloo, reinforce_plus_plus, gspo, cispo)
}


def build_algorithm(config: AlgorithmSettings) -> Algorithm:
    """The algorithm that the settings name, with their options bound. It pickles, and holds no tensors.

    Raises:
        HostError: no installed package has the algorithm or its estimator, or one cannot be loaded.
        ConfigError: its choices do not fit together, or it reads a critic and its settings do not know, or conversely.
    """
    build = CHOICES.get(config.name) or find_plugin("autoclave.algorithms", config.name, "algorithm.name", CHOICES)
    try:
        algorithm = build(config)
        if isinstance(config, ExchangeableAdvantage) and config.advantage:
            algorithm = with_estimator(algorithm, config.advantage)
    except ValueError as error:
        raise ConfigError(f"algorithm.name = {config.name}: {error}") from error
    if algorithm.needs_critic is not config.needs_critic:
        raise ConfigError(
            f"algorithm.name = {config.name}: needs_critic is {config.needs_critic} in its settings, and its equations "
            f"{'read' if algorithm.needs_critic else 'do not read'} old_values. Fix: make needs_critic agree"
        )
    return algorithm
