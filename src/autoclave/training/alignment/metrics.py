"""Metrics of the answers to alignment samples in one iteration. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from autoclave.algorithms import is_uniform
from autoclave.core import AlignmentSample, Group
from autoclave.core.trace import value_of
from autoclave.tasks.execution_semantics import BAD_FORMAT, EXACT, VARIABLE

LENGTHS = (100, 200, 400, 800, 1600)
"""Characters of a program below which metrics count it together with those of about its length."""


def without_alignment_samples(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if not isinstance(group.item.payload, AlignmentSample)]


def alignment_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Accuracy over the alignment samples among `groups`, by kind of value and length of program; {} without any."""
    alignment_samples = [group for group in groups if isinstance(group.item.payload, AlignmentSample)]
    rollouts = [rollout for group in alignment_samples for rollout in group.rollouts]
    if not rollouts:
        return {}
    rewards = [rollout.reward.value for rollout in rollouts if rollout.reward.value is not None]
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for group in alignment_samples:
        alignment_sample: AlignmentSample = group.item.payload
        for rollout in group.rollouts:
            by_kind[f"length/{length_of(alignment_sample)}"].append(rollout.reward.value or 0.0)
            for name, text in alignment_sample.variables.items():
                by_kind[f"kind/{kind_of(text)}"].append(rollout.reward.parts.get(f"{VARIABLE}{name}", 0.0))
    return {
        "alignment/reward": _mean(rewards),
        "alignment/exact_share": _mean([float(rollout.reward.reason == EXACT) for rollout in rollouts]),
        "alignment/bad_format_share": _mean([float(rollout.reward.reason == BAD_FORMAT) for rollout in rollouts]),
        "alignment/zero_variance_share": _mean([float(is_uniform(group.rollouts)) for group in alignment_samples]),
        "alignment/response_length": _mean([float(rollout.num_sampled) for rollout in rollouts]),
        "alignment/variables": _mean([float(len(group.item.payload.variables)) for group in alignment_samples]),
        "alignment/program_length": _mean([float(len(group.item.payload.program)) for group in alignment_samples]),
        "alignment/staleness": _mean(
            [float(_version_of(group) - group.item.payload.version) for group in alignment_samples if group.rollouts]
        ),
        **{f"alignment/accuracy/{name}": _mean(found) for name, found in sorted(by_kind.items())},
    }


def kind_of(text: str) -> str:
    """The type of the value that a literal spells: `int`, `float`, `str`, `bool` or `none`."""
    value = value_of(text)
    return "none" if value is None else type(value).__name__


def length_of(alignment_sample: AlignmentSample) -> str:
    """Class of program lengths that one is counted in."""
    over = next((limit for limit in LENGTHS if len(alignment_sample.program) < limit), None)
    return f"under-{over}" if over else f"from-{LENGTHS[-1]}"


def _version_of(group: Group) -> int:
    """Of the weights that answered."""
    versions = (version for rollout in group.rollouts for version, _, _ in rollout.policy_versions)
    return min(versions, default=group.item.payload.version)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else float("nan")
