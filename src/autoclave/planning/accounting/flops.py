"""Floating-point operations of a model: what the mathematics needs, whatever a run computes twice.

    forward of a sequence of n tokens = 2 n (matrices of all layers) + 4 layers n^2 (width of the queries)
                                        + 2 (tokens with logits) (output embedding)
    backward = 2 x forward; forward alone where adapters learn and the weights do not

A multiply-add is two operations. Attention is counted in full, as in the source, although half of it is masked.

Source: Chowdhery et al., PaLM, arXiv:2204.02311, appendix B (6 N + 12 L H Q T per token of a training step); N is here
what a token is multiplied with: no input embedding, and the output embedding where logits are made alone.
"""

from __future__ import annotations

import numpy as np

from autoclave.core.rollout import IntArray
from autoclave.planning.accounting.shape import ModelShape


def forward_flops(shape: ModelShape, lengths: IntArray, num_logits: IntArray) -> float:
    """Operations of one forward pass over sequences.

    Args:
        shape: of the model.
        lengths: (B,) int64, tokens of each sequence.
        num_logits: (B,) int64, how many of them have logits: the response tokens.
    """
    tokens, squares = float(lengths.sum()), float(np.square(lengths.astype(np.float64)).sum())
    matrices = 2 * tokens * shape.layers * shape.layer_matrices
    attention = 4 * squares * shape.layers * shape.query_width
    return matrices + attention + 2 * float(num_logits.sum()) * shape.embedding


def critic_flops(shape: ModelShape, lengths: IntArray, *, weights_learn: bool = True) -> float:
    """Operations of a critic of `shape`: its values, and learning from the same sequences once."""
    return (4 if weights_learn else 3) * forward_flops(shape, lengths, np.zeros_like(lengths))


def learning_flops(
    shape: ModelShape, lengths: IntArray, num_logits: IntArray, *, scoring_passes: float, weights_learn: bool = True
) -> float:
    """Operations of learning from sequences once: forward and backward, and forward alone for each scoring.

    Without `weights_learn` adapters do, whose own operations are not counted: they are few.
    """
    return ((3 if weights_learn else 2) + scoring_passes) * forward_flops(shape, lengths, num_logits)
