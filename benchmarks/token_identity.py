"""Tokens in, tokens out: what is trained on is, id for id, what was sampled and observed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from autoclave.compose.tasks import grader_of, next_turn_of
from autoclave.config.levels import Level
from autoclave.core import Completion, EndState, FinishReason, Problem, Reward, Rollout, TaskItem
from autoclave.core.futures import completed
from autoclave.environments.tools import ToolEnvironment, written_call
from autoclave.models import encode_prompt
from autoclave.rollout import Collection, Request, SamplingParameters
from autoclave.workers import Batch
from autoclave.workspaces import Declared, Tool, ToolResult

OPENS = "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
TEMPLATES = {
    "hermes": "{% if tools %}<|start|>system\n{{ tools | tojson }}<|end|>\n{% endif %}{% for m in messages %}<|start|>"
    "{% if m.role == 'tool' %}user\n<tool_response>\n{{ m.content }}\n</tool_response>{% else %}{{ m.role }}\n"
    "{{ m.content }}{% endif %}<|end|>\n{% endfor %}" + OPENS,
    "trimming": "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content | trim }}<|end|>{% endfor %}" + OPENS,
    "refusing tools": "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('roles') }}{% endif %}"
    "<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}" + OPENS,
}
TOOL = Tool("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
CALL = written_call("shell", {"command": "cat  numbers.txt"})
TURNS = (f"I look at the numbers.\n\n{CALL}", f"  Once more:{CALL} \n", "The number is  12.\n")


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with merges, so that a text has several tokenisations."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|start|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator([*TURNS, "user assistant system tool"] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", chat_template=template)


class Numbers:
    """Workspaces whose every call gives the same result."""

    level: Level = "sealed"
    tools = (TOOL,)

    def start(self, files: Mapping[str, bytes], test_command: str = "") -> Future[Any]:
        return completed(self)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[ToolResult]:
        return completed(ToolResult(" 1\n\n2 <|end|>\n"))

    def end(self, declared: Declared) -> Future[EndState]:
        return completed(EndState({}))

    def close(self) -> None:
        pass


class Looking:
    """A task of three turns with one tool."""

    name = "looking"
    turns = len(TURNS)

    def item(self, problem: Problem) -> TaskItem:
        raise NotImplementedError

    def environment(self, item: TaskItem) -> ToolEnvironment:
        return ToolEnvironment(Numbers(), {}, (TOOL,))

    def grade(self, rollout: Rollout) -> Future[Reward]:
        return completed(Reward(1.0, "accepted"))


class Spelling:
    """A sampler that says the turns byte by byte, which no tokenizer with merges does; keeps all it got and gave."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer, self.seen = tokenizer, list[tuple[list[int], list[int]]]()

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        return [completed(self._said(request)) for request in requests]

    def _said(self, request: Request) -> Completion:
        text = TURNS[len(self.seen)]
        ids = [i for byte in text for i in self._tokenizer(byte, add_special_tokens=False)["input_ids"]]  # type: ignore
        assert ids != self._tokenizer(text, add_special_tokens=False)["input_ids"]
        ids.append(self._tokenizer.eos_token_id)
        self.seen.append((request.prompt_tokens.tolist(), ids))
        log_probs, versions = np.zeros(len(ids), np.float32), ((0, 0, len(ids)),)
        return Completion(
            request.prompt_tokens, np.array(ids), log_probs, "raw", FinishReason.STOP, text, versions, 0.0, 0.0
        )


def identity_of(template: str) -> tuple[int, int]:
    """Return how many tokens of an episode's row in the batch are those that were sampled or observed, and all."""
    tokenizer, task = tokenizer_of(template), Looking()
    sampler = Spelling(tokenizer)
    item = TaskItem(task.name, "one", "one", ({"role": "user", "content": "Which number?"},), None)
    first = Request(encode_prompt(tokenizer, item.messages), SamplingParameters(), (0,))
    groups = Collection(
        [item], [[first]], sampler, grader_of(task), next_turn=next_turn_of(task, tokenizer, None)
    ).result()
    batch = Batch.from_groups(groups, minibatches=1)
    whole, is_sampled = list[int](), list[bool]()
    for prompt, said in sampler.seen:  # each prompt is all before it, then what was observed
        is_sampled += [False] * (len(prompt) - len(whole)) + [True] * len(said)
        assert len(sampler.seen) == len(TURNS)
        whole = [*prompt, *said] if prompt[: len(whole)] == whole else []
    pairs = zip(batch.tokens.tolist(), batch.sampled.tolist(), whole, is_sampled, strict=False)
    return sum(a == b and c == d for a, c, b, d in pairs), max(len(batch.tokens), len(whole))


def identity_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Return the share of equal tokens over all templates."""
    found = {name: identity_of(template) for name, template in TEMPLATES.items()}
    for name, (equal, tokens) in found.items():
        print(f"{name:<16}{equal:>6} of {tokens} tokens are those that were sampled or observed")
    return {"token_identity": sum(e for e, _ in found.values()) / sum(t for _, t in found.values())}
