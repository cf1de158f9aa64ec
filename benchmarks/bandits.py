"""Synthetic bandits: problems without code, and a policy of a few hundred numbers that answers them.

A problem is a vector of features and a secret word. A response is a sequence of words that ends with END or is cut by
the length limit; its length is the policy's choice. It is right, reward 1, if it ended and

    answer    its last word is the secret
    collect   it says the secret at least as often as the problem needs (1 to 6 times)

The policy is a softmax over the next token, given the one before: its logits are linear in the features of the problem,

    logits[s, v] = sum over f of features[f] weights[f, s, v],   s the token before (END at the start), v the next

so what is learnt on one problem moves the others. Learning is by the functions that training calls (masks, advantages,
trust region, losses, controllers), with the groups and batches of training; only the model is this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column, is_uniform, step_metrics
from autoclave.config import OptimizerConfig
from autoclave.core import Completion, FinishReason, Group, Reward, Rollout, TaskItem
from autoclave.core.rollout import FloatArray, IntArray
from autoclave.training.learning import mask_groups, tensors, with_advantages, with_rewards
from autoclave.workers import Batch

Kind = Literal["answer", "collect"]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

WORDS = 8
END = WORDS
LENGTH_LIMIT = 64
FEATURES = 8
MOST_NEEDED = 6
MEAN_LENGTH = 12
"""Of the responses of a policy that knows nothing."""


@dataclass(frozen=True, slots=True)
class Bandits:
    """P problems of one kind."""

    kind: Kind
    features: FloatArray
    """(P, FEATURES), the first of which is 1."""
    secrets: IntArray
    """(P,) words."""
    needed: IntArray
    """(P,) how often the secret must be said; of `collect`."""

    @staticmethod
    def drawn(kind: Kind, count: int, rng: np.random.Generator) -> Bandits:
        """Problems whose secrets follow from their features, so that they can be learnt."""
        features = rng.standard_normal((count, FEATURES)) / np.sqrt(FEATURES - 1)
        features[:, 0] = 1
        secrets = (features[:, 1:] @ rng.standard_normal((FEATURES - 1, WORDS))).argmax(axis=1)
        return Bandits(kind, features, secrets, rng.integers(1, MOST_NEEDED + 1, count))

    def __len__(self) -> int:
        return len(self.secrets)

    def are_right(self, problems: IntArray, tokens: IntArray) -> BoolArray:
        """Which responses to `problems` (B,) earn their reward; `tokens` (B, LENGTH_LIMIT) has END from the end on."""
        secrets = self.secrets[problems]
        has_ended = tokens[:, -1] == END
        if self.kind == "answer":
            num_words = (tokens != END).sum(axis=1)
            last = tokens[np.arange(len(tokens)), np.maximum(num_words - 1, 0)]
            return has_ended & (last == secrets)
        return has_ended & ((tokens == secrets[:, None]).sum(axis=1) >= self.needed[problems])

    def expected_reward(self, weights: Tensor) -> float:
        """The mean over problems of the probability of a right response; exact, by following all responses at once."""
        says = next_log_probs(weights.detach(), self.features).exp().numpy()  # (P, state, token)
        problems, counts = np.arange(len(self)), MOST_NEEDED + 1
        says_secret = np.zeros_like(says)
        says_secret[problems, :, self.secrets] = says[problems, :, self.secrets]
        says_other = says - says_secret
        says_other[..., END] = 0
        rewarded = np.zeros((len(self), counts, WORDS + 1), dtype=bool)  # by secrets said and token before
        if self.kind == "answer":
            rewarded[problems, :, self.secrets] = True
        else:
            rewarded |= (np.arange(counts) >= self.needed[:, None])[:, :, None]
        ended_well, still = 0.0, np.zeros(rewarded.shape)
        still[:, 0, END] = 1
        for _ in range(LENGTH_LIMIT):
            ended_well += float((still * rewarded * says[:, None, :, END]).sum())
            repeated = still @ says_secret
            still = still @ says_other
            still[:, 1:] += repeated[:, :-1]
            still[:, -1] += repeated[:, -1]
        return ended_well / len(self)


def first_weights(rng: np.random.Generator) -> Tensor:
    """(FEATURES, WORDS + 1, WORDS + 1) float64: responses of about `MEAN_LENGTH` tokens, on some problems longer."""
    weights = rng.standard_normal((FEATURES, WORDS + 1, WORDS + 1)) / 2
    weights[0, :, END] += np.log(WORDS / (MEAN_LENGTH - 1))
    return torch.from_numpy(weights)


def next_log_probs(weights: Tensor, features: FloatArray) -> Tensor:
    """(P, WORDS + 1, WORDS + 1): log-probs of the next token of each problem, by the token before."""
    return torch.einsum("pf,fsv->psv", torch.from_numpy(features), weights).log_softmax(-1)


def sample(bandits: Bandits, weights: Tensor, problems: IntArray, rng: np.random.Generator) -> list[Rollout]:
    """A response to each of `problems` (B,), with its reward."""
    table = next_log_probs(weights.detach(), bandits.features).numpy()
    cumulated = np.exp(table).cumsum(axis=-1)
    tokens = np.full((len(problems), LENGTH_LIMIT), END)
    before, open_rows = np.full(len(problems), END), np.arange(len(problems))
    for position in range(LENGTH_LIMIT):
        bounds = cumulated[problems[open_rows], before[open_rows]]
        chosen = (rng.random((len(open_rows), 1)) > bounds[:, :-1]).sum(axis=1)
        tokens[open_rows, position] = before[open_rows] = chosen
        open_rows = open_rows[chosen != END]
    rewards = bandits.are_right(problems, tokens)
    lengths = np.minimum((tokens != END).sum(axis=1) + 1, LENGTH_LIMIT)
    rows = zip(problems, tokens, lengths, rewards, strict=True)
    return [
        _rollout(int(problem), number, row[:length], table[problem], bool(is_right))
        for number, (problem, row, length, is_right) in enumerate(rows)
    ]


def _rollout(problem: int, number: int, tokens: IntArray, table: FloatArray, is_right: bool) -> Rollout:
    log_probs = table[np.concatenate([[END], tokens[:-1]]), tokens].astype(np.float32)
    ended = FinishReason.STOP if tokens[-1] == END else FinishReason.LENGTH
    versions = ((0, 0, len(tokens)),)
    completion = Completion(np.array([problem]), tokens, log_probs, "raw", ended, "", versions, 0.0, 0.0)
    item = TaskItem("bandit", str(problem), str(problem), (), None)
    return Rollout(
        item,
        number,
        (completion,),
        Reward(float(is_right), "right" if is_right else "wrong"),
        length_limit=LENGTH_LIMIT,
    )


def sample_groups(
    bandits: Bandits, weights: Tensor, count: int, size: int, algorithm: Algorithm, rng: np.random.Generator
) -> tuple[list[Group], int]:
    """`count` groups of `size` on different problems, and how many responses were sampled for them.

    Groups that teach nothing are sampled again as often as the algorithm asks.
    """
    problems = rng.permutation(len(bandits))[:count]
    groups = _grouped(sample(bandits, weights, problems.repeat(size), rng), size)
    num_sampled = count * size
    for _ in range(algorithm.max_resamples):
        idle = [index for index, group in enumerate(groups) if is_uniform(algorithm.mask(group.rollouts))]
        again = _grouped(sample(bandits, weights, problems[idle].repeat(size), rng), size)
        num_sampled += len(idle) * size
        for index, group in zip(idle, again, strict=True):
            groups[index] = group
    return groups, num_sampled


def _grouped(rollouts: Sequence[Rollout], size: int) -> list[Group]:
    parts = [tuple(rollouts[start : start + size]) for start in range(0, len(rollouts), size)]
    return [Group(part[0].item, part) for part in parts]


@dataclass(frozen=True, slots=True)
class Update:
    """What an update was."""

    gradients: Tensor
    """(minibatches, FEATURES, WORDS + 1, WORDS + 1), before they are clipped."""
    kept_advantage: float
    """Sum of |advantage| over tokens that the trust region left, as a share; mean over minibatches."""
    masked_share: float
    """Responses that did not train."""


class Learner:
    """A policy in training: weights, their optimizer, and the state of the algorithm's controllers."""

    def __init__(
        self, bandits: Bandits, algorithm: Algorithm, weights: Tensor, settings: OptimizerConfig, minibatches: int
    ) -> None:
        self.algorithm, self.weights = algorithm, weights.clone().requires_grad_()
        self._bandits, self._settings, self._minibatches = bandits, settings, minibatches
        self._state = algorithm.first_state
        self._optimizer = torch.optim.AdamW(
            [self.weights], settings.learning_rate, settings.betas, weight_decay=settings.weight_decay
        )

    def copy(self, algorithm: Algorithm) -> Learner:
        """The same policy and optimizer, from here on with another algorithm."""
        twin = Learner(self._bandits, algorithm, self.weights.detach(), self._settings, self._minibatches)
        twin._optimizer.load_state_dict(self._optimizer.state_dict())
        for state in twin._optimizer.state.values():  # tensors would be shared
            state.update({name: value.clone() for name, value in state.items()})
        return twin

    def learn(self, groups: Sequence[Group]) -> Update:
        """One update from `groups`: an optimizer step per minibatch, in order."""
        groups = mask_groups(self.algorithm, groups)
        whole = Batch.from_groups(groups, minibatches=self._minibatches)
        whole = with_rewards(self.algorithm, whole, self._state)
        batch = whole.select(whole.rows["computes"])
        batch = batch.with_responses(old_log_probs=self._scores(batch)[0].detach().float().numpy())
        batch = with_advantages(self.algorithm, batch)
        steps = [self._step(batch.select(batch.rows["minibatch"] == n)) for n in range(self._minibatches)]
        entropies = [metrics["entropy"] for _, _, metrics in steps if "entropy" in metrics]
        metrics = {"entropy": float(np.mean(entropies))} if entropies else {}
        self._state = self.algorithm.next_state(self._state, metrics)
        return Update(
            gradients=torch.stack([gradient for gradient, _, _ in steps]),
            kept_advantage=float(np.mean([kept for _, kept, _ in steps])),
            masked_share=float(1 - whole.rows["in_loss"].mean()),
        )

    def _step(self, batch: Batch) -> tuple[Tensor, float, dict[str, float]]:
        """The gradient, unclipped; the share of the advantages that the trust region left; metrics."""
        if not len(batch):
            return torch.zeros_like(self.weights).detach(), 1.0, {}
        columns = tensors(batch)
        before = columns[Column.ADVANTAGES].abs().sum()
        if self.algorithm.trust_region:
            columns = self.algorithm.trust({**columns, Column.STEP_LOG_PROBS: self._scores(batch)[0].detach()})
        kept = columns[Column.ADVANTAGES].abs().sum() / before if before else torch.ones(())
        log_probs, entropy = self._scores(batch)
        columns |= {Column.LOG_PROBS: log_probs, Column.ENTROPY: entropy}
        loss = self.algorithm.loss(columns, observed={"entropy": entropy.detach()})
        self._optimizer.zero_grad()
        loss.total.backward()
        gradient = torch.zeros_like(self.weights) if self.weights.grad is None else self.weights.grad.clone()
        torch.nn.utils.clip_grad_norm_([self.weights], self._settings.gradient_clip)
        self._optimizer.step()
        return gradient.detach(), float(kept), step_metrics([loss.diagnostics])

    def _scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(N,) log-probs and entropies of the response tokens."""
        table = next_log_probs(self.weights, self._bandits.features)
        problems = torch.from_numpy(batch.tokens[batch.offsets[:-1]])[torch.from_numpy(batch.response_rows)]
        is_response = np.ones(len(batch.tokens), dtype=bool)
        is_response[batch.offsets[:-1]] = False  # the problem's number is the prompt
        tokens = batch.tokens.copy()
        tokens[batch.offsets[:-1]] = END
        before = torch.from_numpy(tokens[np.flatnonzero(is_response) - 1])
        chosen = table[problems, before]
        return chosen.gather(1, torch.from_numpy(tokens[is_response])[:, None])[:, 0], -(chosen.exp() * chosen).sum(-1)
