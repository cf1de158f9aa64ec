"""From the settings of an algorithm to the algorithm. The only place that knows all of them."""

from __future__ import annotations

from autoclave.algorithms.algorithm import Algorithm
from autoclave.algorithms.grpo import grpo
from autoclave.algorithms.grpo_plus import grpo_plus
from autoclave.config.algorithm import AlgorithmConfig, GrpoConfig, GrpoPlusConfig


def build_algorithm(config: AlgorithmConfig) -> Algorithm:
    """The algorithm that the settings name, with their options bound. It pickles, and holds no tensors."""
    match config:
        case GrpoConfig():
            return grpo(config)
        case GrpoPlusConfig():
            return grpo_plus(config)
