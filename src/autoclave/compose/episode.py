"""One episode of a task with a model behind a server or in a folder, and the grade of a recorded one."""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from autoclave.compose.benchmark import key_of_environment
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.models import context_for
from autoclave.compose.tasks import AnyTask, episodes_of, grader_of, next_turn_of, open_task
from autoclave.compose.workers import open_samplers
from autoclave.config import EndpointConfig, TrainConfig
from autoclave.core import Completion, EngineFault, FinishReason, InputError, Problem, Rollout, TaskItem, read_problems
from autoclave.core.files import existing_file
from autoclave.core.futures import completed, linked
from autoclave.core.json import nearest, shown
from autoclave.core.rollout import request_of_turn
from autoclave.environments.tools import schema_of, split_calls, written_call
from autoclave.evaluation.endpoint import Endpoint
from autoclave.evaluation.responses import Response, ResponseRequest
from autoclave.models import encode_prompt, load_tokenizer
from autoclave.problems import ProblemSets, require_fitting
from autoclave.rollout import Collection, NextTurn, Request, Sampler, SamplingParameters
from autoclave.rollout.checked_rewards import settled, started
from autoclave.training.saved_groups import rollout_of
from autoclave.workspaces import Tool

FORMAT = "autoclave-episode/1"
_NONE = np.empty(0, np.int64)
_NO_CALLS = "Fix: a server with function calling (vLLM: --enable-auto-tool-choice), or the folder of the model"


def run_episode(
    config: TrainConfig, name: str, policy: str, endpoint: EndpointConfig, say: Callable[[str], None] = print
) -> tuple[Rollout, Mapping[str, Any]]:
    """Return a graded episode of the problem `name` with `policy`, an address or a folder, and what a server counted.

    Raises InputError: problem or policy cannot be used, or a server refuses. EngineFault: it does not answer.
    """
    sampler, folder = config.sampler, Path(policy)
    parameters = SamplingParameters(sampler.temperature, sampler.top_p, sampler.max_new_tokens, sampler.stops)
    first = Request(_NONE, parameters, (config.seed,))
    with _opened(config, name) as (task, item):
        if policy.startswith(("http://", "https://")):
            with closing(Endpoint(policy, endpoint, key_of_environment(endpoint.api_key_variable))) as server:
                chat = _Chat(server, ResponseRequest(item.id, item.messages, True, parameters, config.seed), first)
                rollout = _played(task, item, first, chat, episodes_of(task, lambda *_: chat))
                if chat.asks.tools and not any(split_calls(turn.text)[1] for turn in rollout.turns):
                    say(f"note: the policy called no tool. {_NO_CALLS}, if that was not its choice")
                return rollout, server.account()
        settle_libraries(config)
        tokenizer = load_tokenizer(policy, config.model.chat_template)
        first = replace(first, prompt_tokens=encode_prompt(tokenizer, item.messages))
        with open_samplers(config, folder, say) as pool:
            return _played(task, item, first, pool, next_turn_of(task, tokenizer, context_for(config, folder))), {}


def _played(task: AnyTask, item: TaskItem, first: Request, sampler: Sampler, next_turn: NextTurn | None) -> Rollout:
    return Collection([item], [[first]], sampler, grader_of(task), next_turn=next_turn).result()[0].rollouts[0]


def grade_episode(config: TrainConfig, name: str, path: Path) -> Rollout:
    """Return the episode of the problem `name` in a file, with the reward that its end earns now.

    Raises InputError: there is none in the file.
    """
    content = existing_file(path, "episode").read_bytes()
    with _opened(config, name) as (task, item):
        try:
            stored: Any = json.loads(content)
            if stored["format"] != FORMAT:
                raise ValueError(f"format = {shown(stored['format'])}")
            rollout = rollout_of(item, stored)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"--replay {path}: no episode of {item.id!r} ({error}). Fix: a file of --out") from None
        fault = rollout.reward.verdict.fault if rollout.reward.verdict else None
        if fault and fault.kind == "environment":  # it never came to its end
            return rollout
        return replace(rollout, reward=settled(started(grader_of(task), rollout), item))


@contextmanager
def _opened(config: TrainConfig, name: str) -> Generator[tuple[AnyTask, TaskItem]]:
    problem = _problem(config, name)
    with build_judge(config.judge, config.sandbox) as judge:
        judge.check(problem)
        with open_task(config.task, judge) as task:
            yield task, task.item(problem)


def _problem(config: TrainConfig, name: str) -> Problem:
    """Return the problem `FILE#ID`, or `ID` of those that the settings name."""
    file, is_of_file, id = name.rpartition("#") if not Path(name).is_file() else (name, "#", "")
    sets = None if is_of_file else ProblemSets(config)
    by_id = {each.id: each for each in ([*sets.train, *sets.heldout] if sets else read_problems(Path(file)))}
    if id not in by_id:
        raise InputError(
            f"{shown(name)}: no such problem; {nearest(id, [*by_id])}. Fix: FILE#ID, or an id of a recipe's"
        )
    require_fitting([by_id[id]], config.task, name)
    return by_id[id]


class _Chat:
    """The `Context` and the `Sampler` of one episode with a server, which is asked for what follows `asks.messages`."""

    def __init__(self, server: Endpoint, asks: ResponseRequest, first: Request) -> None:
        self._server, self._first, self.asks = server, first, asks
        self._said = Response("")

    def open(self, messages: Sequence[Mapping[str, str]], tools: Sequence[Tool]) -> Request:
        self.asks = replace(self.asks, messages=tuple(messages), tools=tuple(map(schema_of, tools)))
        return self._first

    def extend(self, turns: Sequence[Completion], messages: Sequence[Mapping[str, str]]) -> Request:
        said, results = self._said, [each["content"] for each in messages if each["role"] == "tool"]
        answer: dict[str, Any] = {"role": "assistant", "content": said.text}
        told: list[dict[str, Any]] = [{"role": "user", "content": "\n\n".join(results)}] if results else []
        if said.calls:
            made = zip_longest(said.calls, results[: len(said.calls)], fillvalue="This call was not made.")
            told = [{"role": "tool", "tool_call_id": call[0], "content": result} for call, result in made]
            answer["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in said.calls
            ]
        others = [each for each in messages if each["role"] != "tool"]
        self.asks = replace(self.asks, messages=(*self.asks.messages, answer, *told, *others))
        return replace(self._first, seed=request_of_turn(self._first.seed, len(turns)))

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        return [linked(future, self._completion) for future in self._server.respond([self.asks] * len(requests))]

    def _completion(self, done: Future[Response]) -> Future[Completion]:
        try:
            self._said = said = done.result()
        except InputError as error:
            if not self.asks.tools:
                raise
            raise InputError(f"{error}. {_NO_CALLS}") from None
        if said.finish == "filtered":
            raise EngineFault("the content filter of the server cut the response, which the policy did not end")
        calls = [written_call(name, arguments) for _, name, arguments in said.calls]
        text = "\n".join([split_calls(said.text)[0], *calls]).strip() if calls else said.text
        reason = FinishReason.LENGTH if said.finish == "length" else FinishReason.STOP
        numbers, now = np.empty(0, np.float32), time.time()
        return completed(Completion(_NONE, _NONE, numbers, "raw", reason, text, (), now, now))
