"""A policy that calls functions over chat completions plays an episode with tools: results return with their ids."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose import episode
from autoclave.config import EndpointConfig, TrainConfig
from autoclave.core import EngineFault, InputError, Problem, Reward, Rollout, TaskItem
from autoclave.environments.tools import ToolEnvironment
from autoclave.workspaces import ToolResult
from tests.environments.test_tools import SHELL, TOOLS, Workspaces
from tests.evaluation.chat_server import ChatServer
from tests.training_parts import settled

pytestmark = pytest.mark.timeout(60)


class Files:
    """A `MultiTurnTask` with the tools of a workspace."""

    name, turns = "files", 4

    def __init__(self, workspaces: Any) -> None:
        self._workspaces = workspaces

    def item(self, problem: Problem) -> TaskItem:
        return TaskItem(self.name, problem.id, problem.id, ({"role": "user", "content": "Do it."},), problem)

    def environment(self, item: TaskItem) -> ToolEnvironment:
        return ToolEnvironment(self._workspaces, {"made": b"old\n"}, TOOLS)

    def grade(self, rollout: Rollout) -> Future[Reward]:
        return settled(Reward(1.0, "done"))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "Done.")
    yield server
    server.close()


def calling(*calls: tuple[str, str], content: str | None = None) -> dict[str, Any]:
    """A choice with calls of functions, by name and arguments."""
    made = [
        {"id": f"id{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"message": {"role": "assistant", "content": content, "tool_calls": made}, "finish_reason": "tool_calls"}


def play(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, *results: Any, said: list[str] | None = None
) -> tuple[Rollout, Workspaces]:
    workspaces = Workspaces(*results)
    monkeypatch.setattr(episode, "open_task", lambda config, judge: nullcontext(Files(workspaces)))
    example = f"{Path(__file__).parents[2]}/examples/problems.jsonl#add"
    config, endpoint = TrainConfig(judge={"workers": 1}), EndpointConfig(retries=0)  # pyright: ignore
    rollout, _ = episode.run_episode(config, example, server.url, endpoint, (said if said is not None else []).append)
    return rollout, workspaces


def test_calls_are_made_and_their_results_return_with_their_ids(server: ChatServer, monkeypatch: pytest.MonkeyPatch):
    echo = ("shell", '{"command": "echo </tool_call>"}')
    server.trouble = [
        calling(echo, ("read", "{"), ("read", '{"path": "a"}'), content="I look."),
        calling(("rm", "{}"), content="<tool_call>ls</tool_call>"),
    ]
    rollout, workspaces = play(server, monkeypatch, ToolResult("one"), ToolResult("three", is_error=True))
    assert workspaces.calls == [("shell", {"command": "echo </tool_call>"}), ("read", {"path": "a"})]
    assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["shell", "read"]
    _, answer, *told = server.bodies[1]["messages"]
    assert (answer["content"], answer["tool_calls"][1]["function"]["arguments"]) == ("I look.", "{")
    assert [(each["role"], each["tool_call_id"]) for each in told] == [("tool", f"id{n}") for n in range(3)]
    assert [each["content"][:20] for each in told] == ["one", "the call is not JSON", "three"]
    assert "name = 'rm': there is no such tool" in server.bodies[2]["messages"][-1]["content"]
    assert (len(rollout.turns), rollout.tool_errors, rollout.last.text, rollout.reward.value) == (3, 3, "Done.", 1)
    assert rollout.end_state
    assert rollout.end_state.changes.split("\n")[2:] == ["@@ -1 +0,0 @@", "-old"]


def test_more_calls_than_are_made_all_have_a_result(server: ChatServer, monkeypatch: pytest.MonkeyPatch):
    server.trouble = [calling(*[("shell", "{}")] * 18)]
    play(server, monkeypatch, *[ToolResult("done")] * 16)
    told = [each["content"] for each in server.bodies[1]["messages"][2:]]
    assert told[15:] == ["done", "calls after the first 16 were not made", "This call was not made."]


def test_calls_in_the_text_of_a_server_without_function_calling_are_made(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
):
    server.trouble = [{"message": {"content": SHELL}}]
    _, workspaces = play(server, monkeypatch, ToolResult("one"))
    assert (len(workspaces.calls), server.bodies[1]["messages"][-1]) == (1, {"role": "user", "content": "one"})
    said: list[str] = []
    play(server, monkeypatch, said=said)
    assert "called no tool. Fix: a server with function calling" in said[0]


def test_a_server_that_refuses_tools_or_sends_damaged_calls_is_named(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
):
    server.trouble = [400]
    with pytest.raises(InputError, match=r"refused with status 400: .*trouble.* Fix: a server with function calling"):
        play(server, monkeypatch)
    server.trouble = [{"message": {"content": None, "tool_calls": [{"function": {}}]}}]
    with pytest.raises(EngineFault, match="damaged call"):
        play(server, monkeypatch)
