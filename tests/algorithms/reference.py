"""Every algorithm a second time: loops over rollouts and tokens in Python numbers, from the equations of the papers.

Written without looking at, or calling, anything of `autoclave.algorithms`. Only the settings are shared. Gradients are
those of torch, by one scalar per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from autoclave.config import AlgorithmSettings, Config

Numbers = list[float]


class Batch:
    """The columns of a test batch as Python lists, with the tokens of each rollout in order."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        lists = {name: column.tolist() for name, column in columns.items()}
        self.tokens_of = [[t for t, row in enumerate(lists["row"]) if row == i] for i in range(len(lists["group"]))]
        self.row: list[int] = lists["row"]
        self.group: list[int] = lists["group"]
        self.rewards: Numbers = lists["rewards"]
        self.in_loss: list[bool] = lists["in_loss"]
        self.limits: list[int] = lists["length_limits"]
        self.old, self.reference = lists["old_log_probs"], lists["reference_log_probs"]
        self.sampler, self.old_values = lists["sampler_log_probs"], lists["old_values"]
        self.new = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in lists["log_probs"]]
        self.entropy = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in lists["entropy"]]
        self.values = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in lists["values"]]

    @property
    def trained(self) -> list[int]:
        return [i for i in range(len(self.group)) if self.in_loss[i]]

    @property
    def trained_tokens(self) -> list[int]:
        return [t for t in range(len(self.row)) if self.in_loss[self.row[t]]]


@dataclass
class Expected:
    """What the algorithm must give, (N,) each but for the losses."""

    advantages: Numbers
    weights: Numbers
    loss: float
    by_log_prob: Numbers
    by_entropy: Numbers
    returns: Numbers | None = None
    critic_loss: float | None = None
    by_value: Numbers | None = None


# --- Advantages ----------------------------------------------------------------------------------------------------


def baseline_of(config: AlgorithmSettings, batch: Batch, i: int) -> list[int]:
    asked = getattr(config, "include_masked_in_baseline", False)
    return [
        j
        for j in range(len(batch.group))
        if batch.group[j] == batch.group[i] and (batch.in_loss[j] or (asked and not math.isnan(batch.rewards[j])))
    ]


def in_group(config: AlgorithmSettings, batch: Batch, rewards: Numbers, i: int, kind: str) -> float:
    """Advantage of rollout i within the baseline of its group; `kind` is std, mean, centred or others."""
    count = [rewards[j] for j in baseline_of(config, batch, i)]
    if not batch.in_loss[i] or len(set(count)) < 2:
        return 0.0
    if kind == "others":
        return rewards[i] - (sum(count) - rewards[i]) / (len(count) - 1)
    centred = rewards[i] - fmean(count)
    if kind == "mean":
        return centred / fmean(count) if fmean(count) > 0 else 0.0
    return centred / (stdev(count) + 1e-6) if kind == "std" else centred


def spread_over_tokens(batch: Batch, of_rollout: Callable[[int], float]) -> Numbers:
    return [of_rollout(row) for row in batch.row]


def standardised(batch: Batch, advantages: Numbers) -> Numbers:
    """Mean 0 and deviation 1 over all trained tokens."""
    among = [advantages[t] for t in batch.trained_tokens]
    if len(set(among)) < 2:
        return [0.0] * len(advantages)
    mean, deviation = fmean(among), stdev(among)
    return [(a - mean) / (deviation + 1e-8) if batch.in_loss[batch.row[t]] else 0.0 for t, a in enumerate(advantages)]


def divergence(name: str, p: float, q: float) -> float:
    """KL(p, q) of a token sampled from p, from both log-probs."""
    return {"k1": p - q, "k2": (p - q) ** 2 / 2, "k3": math.exp(q - p) - 1 - (q - p)}[name]


def penalties(config: AlgorithmSettings, batch: Batch, estimator: str) -> Numbers:
    pairs = zip(batch.old, batch.reference, strict=True)
    return [config.kl_coefficient * divergence(estimator, p, q) for p, q in pairs]


def gae(config: Config, batch: Batch, rewards: Numbers, penalty: Numbers) -> tuple[Numbers, Numbers]:
    """Advantages and returns, backwards through each response."""
    advantages, returns = [0.0] * len(batch.row), [0.0] * len(batch.row)
    for i in batch.trained:
        later, next_value = 0.0, 0.0
        for position, t in reversed(list(enumerate(batch.tokens_of[i]))):
            is_last = position == len(batch.tokens_of[i]) - 1
            reward = (rewards[i] if is_last else 0.0) - penalty[t]
            delta = reward + config.discount * next_value - batch.old_values[t]
            later = delta + config.discount * config.gae_lambda * later
            next_value = batch.old_values[t]
            advantages[t], returns[t] = later, later + batch.old_values[t]
    return (standardised(batch, advantages) if config.whiten else advantages), returns


def rewards_to_go(batch: Batch, rewards: Numbers, penalty: Numbers) -> Numbers:
    advantages = [0.0] * len(batch.row)
    for i in batch.trained:
        for position, t in enumerate(batch.tokens_of[i]):
            advantages[t] = rewards[i] - sum(penalty[later] for later in batch.tokens_of[i][position:])
    return standardised(batch, advantages)


def softened(config: AlgorithmSettings, batch: Batch) -> Numbers:
    rewards = []
    for i, reward in enumerate(batch.rewards):
        length, buffer = len(batch.tokens_of[i]), config.overlong_buffer * batch.limits[i]
        begins = batch.limits[i] - buffer
        lost = 0.0 if length <= begins else min(1.0, (length - begins) / buffer)
        rewards.append(reward - config.overlong_penalty * lost)
    return rewards


def drop_dominant(config: AlgorithmSettings, batch: Batch) -> None:
    """GRPO+ of the introduction: long responses that hold too much of the variance no longer train."""
    lengths = {i: len(batch.tokens_of[i]) for i in batch.trained if batch.tokens_of[i]}
    squared = {i: in_group(config, batch, batch.rewards, i, "std") ** 2 for i in lengths}
    mean_length = fmean(lengths.values()) if lengths else 0.0
    total = sum(lengths[i] * squared[i] for i in lengths)
    for i, length in lengths.items():
        rest = total - length * squared[i]
        share, usual = (
            size * squared[i] / (rest + size * squared[i]) if squared[i] else 0.0 for size in (length, mean_length)
        )
        if share > config.variance_share_limit >= usual:
            batch.in_loss[i] = False


def advantages_of(config: AlgorithmSettings, batch: Batch) -> tuple[Numbers, Numbers | None]:
    """What the algorithm makes of rewards, then its estimator or the one that is chosen in its place."""
    rewards = softened(config, batch) if config.name == "dapo" else batch.rewards
    penalty = [0.0] * len(batch.row)
    if config.name in ("ppo", "rloo") or (config.name == "reinforce_plus_plus" and config.baseline == "none"):
        penalty = penalties(config, batch, getattr(config, "kl_estimator", "k1"))
    estimator, settings = config.name, config
    if config.advantage:
        estimator, settings = config.advantage.name, config.advantage
    elif estimator == "reinforce_plus_plus" and config.baseline == "group":
        estimator = "reinforce_plus_plus_baseline"
    if estimator in ("ppo", "gae"):
        return gae(settings, batch, rewards, penalty)
    if estimator == "reinforce_plus_plus":
        return rewards_to_go(batch, rewards, penalty), None
    whole = [r - sum(penalty[t] for t in batch.tokens_of[i]) for i, r in enumerate(rewards)]
    kinds = {"rloo": "others", "max_rl": "mean"} | dict.fromkeys(
        ("dr_grpo", "reinforce_plus_plus_baseline", "distillation"), "centred"
    )
    kind = kinds.get(estimator, "std")
    advantages = spread_over_tokens(batch, lambda i: in_group(config, batch, whole, i, kind))
    if estimator == "distillation":
        towards = [
            (q - p) if batch.in_loss[row] else 0.0
            for p, q, row in zip(batch.old, batch.reference, batch.row, strict=True)
        ]
        return [t + settings.reward_weight * a for t, a in zip(towards, advantages, strict=True)], None
    return standardised(batch, advantages) if estimator == "reinforce_plus_plus_baseline" else advantages, None


# --- Weights -------------------------------------------------------------------------------------------------------


def weights_of(config: AlgorithmSettings, batch: Batch) -> Numbers:
    responses = sum(bool(batch.tokens_of[i]) for i in batch.trained)
    weights = []
    for row in batch.row:
        if not batch.in_loss[row]:
            weights.append(0.0)
        elif config.name in ("grpo", "gspo"):
            weights.append(1 / responses / len(batch.tokens_of[row]))
        elif config.name == "dr_grpo":
            weights.append(1 / responses / batch.limits[row])
        elif config.name == "rloo":
            weights.append(1 / responses)
        else:
            weights.append(1 / len(batch.trained_tokens))
    return weights


def corrections_of(config: AlgorithmSettings, batch: Batch) -> Numbers:
    """Factors on the advantages for a sampler that is not quite the trainer."""
    rule = config.correction
    if rule.name == "none":
        return [1.0] * len(batch.row)
    gaps = [p - q for p, q in zip(batch.old, batch.sampler, strict=True)]
    factors = []
    for t, row in enumerate(batch.row):
        of_row = [gaps[s] for s in batch.tokens_of[row]]
        ratio = math.exp({"token": gaps[t], "sequence": sum(of_row), "geometric": fmean(of_row)}[rule.level])
        if rule.name == "truncated":
            factors.append(min(ratio, rule.upper))
        else:
            factors.append(ratio if rule.lower <= ratio <= rule.upper else 0.0)
    return factors


# --- Losses --------------------------------------------------------------------------------------------------------


def surrogate(ratio: torch.Tensor, advantage: float, lower: float, upper: float) -> torch.Tensor:
    bounded = min(max(ratio.item(), 1 - lower), 1 + upper)
    return -ratio * advantage if ratio.item() * advantage <= bounded * advantage else torch.tensor(-bounded * advantage)


def policy_loss(config: AlgorithmSettings, batch: Batch, t: int, advantage: float) -> torch.Tensor:
    ratio = (batch.new[t] - batch.old[t]).exp()
    if config.name == "rloo":
        return -advantage * batch.new[t]
    if config.name == "cispo":
        weight = min(max(ratio.item(), 1 - config.clip_lower), 1 + config.clip_upper)
        return -weight * advantage * batch.new[t]
    if config.name == "gspo":  # one ratio for the response; each of its tokens counts it once
        tokens = batch.tokens_of[batch.row[t]]
        ratio = (sum(batch.new[s] - batch.old[s] for s in tokens) / len(tokens)).exp()
    lower, upper = (config.clip, config.clip) if hasattr(config, "clip") else (config.clip_lower, config.clip_upper)
    loss = surrogate(ratio, advantage, lower, upper)
    bound = getattr(config, "dual_clip", None)
    if bound is not None and advantage < 0 and loss.item() > -bound * advantage:
        return torch.tensor(-bound * advantage)
    return loss


def kl_in_loss(config: AlgorithmSettings, batch: Batch, t: int) -> torch.Tensor | float:
    estimator = {
        "grpo": getattr(config, "kl_estimator", ""),
        "grpo_plus": "k3",
        "reinforce_plus_plus": "k2" if getattr(config, "baseline", "") == "group" else "",
    }.get(config.name, "")
    d = batch.reference[t] - batch.new[t]
    return (
        getattr(config, "kl_coefficient", 0.0) * {"": 0.0, "k1": -d, "k2": d**2 / 2, "k3": d.exp() - 1 - d}[estimator]
    )


def bonus(config: AlgorithmSettings, batch: Batch, t: int) -> torch.Tensor:
    is_introduction = getattr(config, "reading", "") == "introduction"
    coefficient = config.exploration_coefficient if is_introduction else getattr(config, "entropy_coefficient", 0.0)
    return coefficient * batch.entropy[t]


def critic_loss(config: Config, batch: Batch, t: int, target: float) -> torch.Tensor:
    value, old = batch.values[t], batch.old_values[t]
    error = (value - target) ** 2
    if config.value_clip is not None:
        near = old + torch.clamp(value - old, -config.value_clip, config.value_clip)
        error = max(error, (near - target) ** 2, key=lambda each: each.item())
    return error / 2


def gradient(leaves: Sequence[torch.Tensor]) -> Numbers:
    return [0.0 if leaf.grad is None else leaf.grad.item() for leaf in leaves]


def reference(config: AlgorithmSettings, columns: dict[str, torch.Tensor]) -> Expected:
    """What `config` must give on a batch of one optimizer step, the first after sampling."""
    batch = Batch(columns)
    if getattr(config, "reading", "") == "introduction":
        drop_dominant(config, batch)
    advantages, returns = advantages_of(config, batch)
    factors, weights = corrections_of(config, batch), weights_of(config, batch)
    advantages = [a * factor for a, factor in zip(advantages, factors, strict=True)]
    total = torch.zeros((), dtype=torch.float64)
    for t in batch.trained_tokens:
        loss = policy_loss(config, batch, t, advantages[t]) + kl_in_loss(config, batch, t) - bonus(config, batch, t)
        total = total + weights[t] * loss
    if total.requires_grad:
        total.backward()
    expected = Expected(advantages, weights, total.item(), gradient(batch.new), gradient(batch.entropy))
    if returns is not None:
        of_critic = torch.zeros((), dtype=torch.float64)
        for t in batch.trained_tokens:
            of_critic = of_critic + weights[t] * critic_loss(config.advantage or config, batch, t, returns[t])
        if of_critic.requires_grad:
            of_critic.backward()
        expected.returns, expected.critic_loss = returns, of_critic.item()
        expected.by_value = gradient(batch.values)
    return expected
