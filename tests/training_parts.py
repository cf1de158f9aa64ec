"""What tests of models, sampling, workers and training share: tiny policies, made-up rollouts, scripted parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import LlamaConfig, LlamaForCausalLM

from autoclave.config import TinyModelConfig
from autoclave.core import (
    Completion,
    Fault,
    FinishReason,
    Group,
    MaskReason,
    Reward,
    Rollout,
    Status,
    TaskItem,
    TestResult,
    Verdict,
)
from autoclave.models import Policy, build_tiny_policy
from autoclave.rollout import Request, SamplingParameters

TINY = TinyModelConfig(hidden_size=32, layers=2, heads=2, vocabulary=300, context=128)
TEXTS = ["Print 3.\n```python\nprint(3)\n```", "Print 14 and 15.\n```python\nprint(14, 15)\n```"]
DEADLINE_S = 60.0
"""After so long, a wait for a condition fails; on a healthy machine none takes a second."""


# --- Policies ------------------------------------------------------------------------------------------------------


@cache
def _tiny_policy(seed: int) -> Policy:
    policy = build_tiny_policy(TINY, TEXTS, seed=seed, device="cpu")
    with torch.no_grad():
        for weights in policy.model.parameters():
            if weights.ndim == 2:
                weights.mul_(10)  # fresh weights give nearly uniform distributions, which hide mistakes
    return policy


def tiny_policy(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Policy:
    """A Llama of 30 thousand random parameters, anew for every caller."""
    policy = _tiny_policy(seed)
    return Policy(copy.deepcopy(policy.model).to(dtype), policy.tokenizer)


def reciting_policy(text: str) -> Policy:
    """A policy that answers `text`, whatever it is asked. No token of `text` may occur twice.

    The hidden state names the last token alone, and the head holds its successor.
    """
    tokenizer = _tiny_policy(0).tokenizer
    size = len(tokenizer)
    shape = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(shape).eval()
    said = tokenizer.encode(text, add_special_tokens=False)
    assert len(set(said)) == len(said), "a token occurs twice"
    chain = [tokenizer.convert_tokens_to_ids("<assistant>"), *said, tokenizer.eos_token_id]
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim == 2:
                weights.zero_()
        model.get_input_embeddings().weight.copy_(torch.eye(size))
        for token, successor in pairwise(chain):
            model.get_output_embeddings().weight[successor, token] = 10.0
    return Policy(model, tokenizer)


def plain_log_probs(policy: Policy, prompt: np.ndarray, response: np.ndarray, temperature: float = 1.0) -> torch.Tensor:
    """(T,) log-probs of a response by one forward pass over the whole sequence: no batch, padding or cache."""
    ids = torch.from_numpy(np.concatenate([prompt, response]))[None]
    logits = policy.model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.from_numpy(response)[:, None])[:, 0]


@contextmanager
def gradients_of_steps(policy: Policy) -> Iterator[list[torch.Tensor]]:
    """What optimizers are given within the block, flat, step by step; after a step it is gone."""
    taken: list[torch.Tensor] = []
    parameters = list(policy.model.parameters())
    hook = register_optimizer_step_pre_hook(
        lambda *_: taken.append(torch.cat([weights.grad.flatten() for weights in parameters]))
    )
    try:
        yield taken
    finally:
        hook.remove()


# --- Requests and rollouts -----------------------------------------------------------------------------------------


def request(prompt: Iterable[int], *seed: int, **parameters: object) -> Request:
    return Request(np.array(list(prompt), dtype=np.int64), SamplingParameters(**parameters), seed)


def item(name: str = "item") -> TaskItem:
    return TaskItem("task", name, name, ({"role": "user", "content": f"Solve {name}."},), None)


def completion(
    tokens: Sequence[int] = (5, 6, 1),
    *,
    prompt: Sequence[int] = (2, 9, 3),
    text: str = "text",
    finish_reason: FinishReason = FinishReason.STOP,
) -> Completion:
    return Completion(
        prompt_tokens=np.array(prompt, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int64),
        log_probs=np.full(len(tokens), -1.0, dtype=np.float32),
        log_prob_kind="raw",
        finish_reason=finish_reason,
        text=text,
        policy_versions=((0, 0, len(tokens)),),
        submitted_at=0.0,
        finished_at=0.0,
    )


def earned(value: float | None) -> Reward:
    """The reward of a judged program; None after a fault of the judge."""
    if value is None:
        return Reward(None, "no_verdict", verdict=Verdict.none(Fault("sandbox", "no cell could be made")))
    status = Status.ACCEPTED if value == 1 else Status.WRONG_ANSWER
    return Reward(value, status, {}, Verdict.of(status, tests=[TestResult(0, status, 0.1, 0.1, 8.0)]))


def group_of(
    rewards: Sequence[float | None],
    completions: Sequence[Completion] | None = None,
    *,
    name: str = "item",
    mask_reasons: Sequence[MaskReason | None] | None = None,
) -> Group:
    asked = item(name)
    completions = completions or [completion() for _ in rewards]
    reasons = mask_reasons or [None] * len(rewards)
    rollouts = zip(completions, rewards, reasons, strict=True)
    return Group(asked, tuple(Rollout(asked, n, c, earned(r), why) for n, (c, r, why) in enumerate(rollouts)))


# --- Scripted parts ------------------------------------------------------------------------------------------------


def settled(result: object) -> Future:
    """A future that holds `result`, or raises it."""
    future: Future = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


class ScriptedSampler:
    """A `Sampler` that answers each request by `answer(request)`, at once."""

    def __init__(self, answer: Callable[[Request], Completion | BaseException]) -> None:
        self._answer = answer
        self.asked: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        self.asked += requests
        return [settled(self._answer(request)) for request in requests]


class HeldSampler:
    """A `Sampler` whose answers the test gives, one by one, by setting `futures`."""

    def __init__(self) -> None:
        self.futures: list[Future[Completion]] = []

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        self.futures = [Future() for _ in requests]
        return self.futures
