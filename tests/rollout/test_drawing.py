"""Tokens are drawn by the random numbers of their requests, whatever they are drawn beside."""

from __future__ import annotations

import numpy as np
import torch

from autoclave.rollout import SamplingParameters
from autoclave.rollout.drawing import WINDOW, NextUniforms, RowParameters, draw
from autoclave.rollout.interface import uniforms

CPU = torch.device("cpu")
KINDS = [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6), (0.0, 1.0), (1.3, 0.9)]


def by_definition(logits: np.ndarray, uniform: float, temperature: float, top_p: float) -> tuple[int, float]:
    """The first token whose cumulative probability is above `uniform`, in float64, and its log-prob before top-p."""
    scores = logits.astype(np.float64) / (temperature or 1.0)
    log_probs = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
    if temperature == 0:
        token = int(logits.argmax())
        return token, log_probs[token]
    probabilities = np.exp(log_probs)
    if top_p < 1:
        order = np.argsort(-probabilities, kind="stable")
        kept = order[: 1 + int((np.cumsum(probabilities[order]) < top_p).sum())]
        probabilities = np.where(np.isin(np.arange(len(logits)), kept), probabilities, 0.0)
    token = int(np.searchsorted(np.cumsum(probabilities), uniform * probabilities.sum(), side="right"))
    return token, log_probs[token]


def test_tokens_are_those_of_the_distribution_function_and_the_same_alone_and_together():
    draws = np.random.default_rng(0)
    logits = torch.tensor(draws.normal(0, 3, (200, 500)), dtype=torch.float32)
    uniform = torch.tensor(draws.random((200, 1)))
    parameters = [SamplingParameters(temperature=t, top_p=p) for t, p in KINDS] * 40
    tokens, log_probs = draw(logits, uniform, RowParameters.of(parameters, CPU))
    for row, each in enumerate(parameters):
        token, log_prob = by_definition(logits[row].numpy(), float(uniform[row]), each.temperature, each.top_p)
        assert (tokens[row].item(), round(log_probs[row].item(), 4)) == (token, round(log_prob, 4)), row
        alone = draw(logits[row : row + 1], uniform[row : row + 1], RowParameters.of([each], CPU))
        assert (alone[0].item(), alone[1].item()) == (tokens[row].item(), log_probs[row].item())


def test_each_token_has_the_number_of_its_place_also_where_rows_advance_apart_or_begin_again():
    random = [uniforms((row,), 3 * WINDOW) for row in range(5)]
    tokens: list[list[int]] = [[0] * (40 * row) for row in range(4)] + [[]]
    found = NextUniforms(random, tokens)
    draws = np.random.default_rng(0)
    for step in range(2 * WINDOW):
        assert found.numbers().tolist() == [numbers[len(sofar)] for numbers, sofar in zip(random, tokens, strict=True)]
        for sofar in tokens:
            if len(sofar) < 3 * WINDOW - 1 and draws.random() < 0.9:  # a prompt in parts gets no token
                sofar.append(0)
        if step == WINDOW:
            tokens[0].clear()


def test_numbers_of_rows_are_looked_up_without_going_through_rows_for_each_token():
    class Counting(list[int]):
        looks = 0

        def __getitem__(self, key: object) -> object:
            Counting.looks += 1
            return super().__getitem__(key)  # pyright: ignore[reportCallIssue, reportArgumentType]

    random: Counting = Counting(uniforms((0,), 4 * WINDOW) for _ in range(3))  # pyright: ignore[reportArgumentType]
    tokens: list[list[int]] = [[], [], []]
    found = NextUniforms(random, tokens)  # pyright: ignore[reportArgumentType]
    for _ in range(2 * WINDOW):
        found.numbers()
        for sofar in tokens:
            sofar.append(0)
    assert Counting.looks == 2 * 3
