"""Groups with zero advantage: the decision of dynamic sampling. Pure.

Source: Yu et al., DAPO, arXiv:2503.14476, section 3.2.
"""

from collections.abc import Sequence

from autoclave.core.rollout import Rollout


def is_uniform(rollouts: Sequence[Rollout]) -> bool:
    """All rollouts of the group that have a reward have the same one, or fewer than two have one.

    Its advantages are 0: it costs a group's place in the batch, and moves nothing.
    """
    rewards = {rollout.reward.value for rollout in rollouts if rollout.is_trained} - {None}
    return len(rewards) < 2
