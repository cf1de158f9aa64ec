"""What tests of models, sampling, workers and training share: tiny policies, made-up rollouts, scripted parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedTokenizerBase,
)

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
from autoclave.models import HeadModel, Policy, build_tiny_policy
from autoclave.rollout import Engine, Request, SamplingParameters

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
    """A Llama of 30 thousand random parameters, a new one for every caller."""
    policy = _tiny_policy(seed)
    return Policy(copy.deepcopy(policy.model).to(dtype), policy.tokenizer)


def tiny_critic(seed: int = 0) -> HeadModel:
    """A critic on the trunk of `tiny_policy`, which expects nothing yet."""
    return _with_head(LlamaForTokenClassification, seed, 0.0)


def tiny_reward_model(seed: int = 0) -> HeadModel:
    """A reward model on the same trunk, with an opinion of its own."""
    return _with_head(LlamaForSequenceClassification, seed, 1.0)


def _with_head(kind: type[LlamaForTokenClassification | LlamaForSequenceClassification], seed: int, scale: float):
    policy = tiny_policy(seed)
    config = copy.deepcopy(policy.model.config)
    config.num_labels, config.classifier_dropout = 1, 0.0
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(config).eval()
    model.model.load_state_dict(policy.model.model.state_dict())
    with torch.no_grad():
        model.score.weight.mul_(scale)
    return HeadModel(model, policy.tokenizer)


def reciting_policy(text: str, tokenizer: PreTrainedTokenizerBase | None = None) -> Policy:
    """A policy that answers `text`, whatever it is asked. No token of `text` may occur twice.

    The hidden state names the last token alone, and the head holds its successor.
    """
    tokenizer = tokenizer or _tiny_policy(0).tokenizer
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
    limit: int = 8,
) -> Group:
    asked = item(name)
    completions = completions or [completion() for _ in rewards]
    reasons = mask_reasons or [None] * len(rewards)
    rollouts = zip(completions, rewards, reasons, strict=True)
    return Group(
        asked,
        tuple(Rollout(asked, n, (c,), earned(r), why, length_limit=limit) for n, (c, r, why) in enumerate(rollouts)),
    )


# --- Scripted parts ------------------------------------------------------------------------------------------------


def settled(result: object) -> Future:
    """A future that holds `result`, or raises it."""
    future: Future = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def sample_all(engine: Engine, requests: Sequence[Request]) -> list[tuple[int, Completion]]:
    """Position and completion of all `requests`, in the order in which they are done."""
    engine.add(dict(enumerate(requests)))
    done: list[tuple[int, Completion]] = []
    while engine.stats.running or engine.stats.waiting:
        done += engine.step(1.0)
    return done


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


@contextmanager
def given_gradients(parameters: Iterable[torch.nn.Parameter]) -> Generator[list[torch.Tensor]]:
    """The gradient of those of `parameters` that have one, flat, at each step that an optimizer takes in the block."""
    found: list[torch.Tensor] = []
    asked = list(parameters)
    hook = register_optimizer_step_pre_hook(
        lambda *_: found.append(torch.cat([weights.grad.flatten() for weights in asked if weights.grad is not None]))
    )
    try:
        yield found
    finally:
        hook.remove()
