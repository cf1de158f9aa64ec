"""What episodes cost beyond their commands: 64 of three turns, by a scripted policy, over the same commands run bare.

Bare commands run in sessions of their own, as cells do: a kernel that groups tasks by session shares a busy machine
among those.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from harness import compare, seconds, sized
from token_identity import TEMPLATES, tokenizer_of

from autoclave.compose.tasks import grader_of, next_turn_of
from autoclave.core import Completion, FinishReason, Problem, Reward, Rollout, TaskItem
from autoclave.core.futures import completed
from autoclave.core.rollout import IntArray
from autoclave.environments.tools import ToolEnvironment, written_call
from autoclave.models import encode_prompt
from autoclave.rollout import Collection, Request, SamplingParameters
from autoclave.workspaces import LocalWorkspaces
from autoclave.workspaces.tools import TOOLS

TURNS = 3
SHELL = shutil.which("bash") or "sh"


class Counting:
    """A task whose episodes run a command in each of three turns."""

    name, turns = "counting", TURNS

    def __init__(self, workspaces: Any) -> None:
        self._workspaces = workspaces

    def item(self, problem: Problem) -> TaskItem:
        raise NotImplementedError

    def environment(self, item: TaskItem) -> ToolEnvironment:
        return ToolEnvironment(self._workspaces, {"numbers.txt": b"1 2 3\n"}, TOOLS[:1])

    def grade(self, rollout: Rollout) -> Future[Reward]:
        assert rollout.end_state is not None
        assert [turn.observed for turn in rollout.turns] == ["", "done\n", "done\n"]
        assert "numbers.txt" in rollout.end_state.files
        return completed(Reward(1.0, "accepted"))


class Scripted:
    """A sampler that says the same in every turn, at once."""

    def __init__(self, text: str, tokens: IntArray) -> None:
        self._text, self._tokens = text, tokens

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        log_probs, versions = np.zeros(len(self._tokens), np.float32), ((0, 0, len(self._tokens)),)
        return [
            completed(
                Completion(
                    request.prompt_tokens,
                    self._tokens,
                    log_probs,
                    "raw",
                    FinishReason.STOP,
                    self._text,
                    versions,
                    0.0,
                    0.0,
                )
            )
            for request in requests
        ]


def command_of(cpu_s: float) -> str:
    """Return a command that takes so long bare, or longer."""
    steps = 1000
    while seconds(partial(run_bare, loop(steps))) < cpu_s:
        steps = steps * 5 // 4
    return loop(steps)


def loop(steps: int) -> str:
    return f"i=0; while [ $i -lt {steps} ]; do i=$((i+1)); done; echo done"


def run_bare(command: str) -> None:
    subprocess.run([SHELL, "-c", command], capture_output=True, check=True, start_new_session=True)


def overhead_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Return wall time over wall time, with as many episodes at a time as threads that run the commands bare."""
    episodes, cpu_s, rounds = sized(options, (64, 0.1, 5), (64, 0.1, 1), (2, 0.01, 1))
    command = command_of(cpu_s)
    tokenizer = tokenizer_of(TEMPLATES["hermes"])
    text = written_call("shell", {"command": command})
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    sampler = Scripted(text, np.array(ids))
    messages = ({"role": "user", "content": "Count."},)
    items = [TaskItem("counting", str(number), str(number), messages, None) for number in range(episodes)]
    prompt = encode_prompt(tokenizer, items[0].messages)
    requests = [[Request(prompt, SamplingParameters(), (0, number, 0))] for number in range(episodes)]
    with closing(LocalWorkspaces()) as workspaces, ThreadPoolExecutor(episodes) as threads:
        task = Counting(workspaces)

        def in_episodes() -> None:
            following = next_turn_of(task, tokenizer, None, together=False)
            groups = Collection(items, requests, sampler, grader_of(task), next_turn=following).result()
            assert all(rollout.reward.value == 1 for group in groups for rollout in group.rollouts)

        def bare() -> None:
            list(threads.map(lambda _: [run_bare(command) for _ in range(TURNS)], range(episodes)))

        found = compare(lambda: seconds(in_episodes), lambda: seconds(bare), rounds=rounds)
    print(f"wall time of {episodes} episodes over that of their commands: {found}")
    return {"episode_overhead": found.median}
