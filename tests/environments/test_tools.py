"""Tool calls are found in text; what is wrong with one is told, counted and limited; a turn without one ends."""

from concurrent.futures import Future
from typing import Any

import pytest

from autoclave.core import EndState, Observation, SandboxFault
from autoclave.environments.tools import ToolEnvironment, tool_calls, written_call
from autoclave.workspaces import Declared, Tool, ToolResult
from tests.training_parts import item, settled

TOOLS = (Tool("shell", "Run a command.", {"type": "object"}), Tool("read", "Read a file.", {"type": "object"}))
SHELL = written_call("shell", {"command": "ls"})


@pytest.mark.parametrize(
    "text",
    [
        f"I look.\n{SHELL}",
        '```tool\n{"name": "shell", "arguments": {"command": "ls"}}\n```\nThen I wait.',
        '{"name": "shell", "parameters": {"command": "ls"}}',
    ],
)
def test_calls_are_found_in_every_form(text):
    (call,) = tool_calls(text, TOOLS)
    assert (call.name, call.arguments, call.problem) == ("shell", {"command": "ls"}, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<tool_call>{"name": "shell"', "the call has no end"),
        ('```tool\n{"name": "shell"}', "the call has no end"),
        ("<tool_call>ls</tool_call>", "the call is not JSON: Expecting value"),
        (f"<tool_call>{'[' * 100_000}</tool_call>", "the call is not JSON"),
        ("<tool_call>[1]</tool_call>", 'must be a JSON object with "name" and "arguments"'),
        ('<tool_call>{"name": "rm"}</tool_call>', "name = 'rm': there is no such tool; must be one of shell, read"),
        ('<tool_call>{"name": "shell", "arguments": "ls"}</tool_call>', "shell: arguments must be a JSON object"),
    ],
)
def test_a_malformed_call_says_what_is_wrong(text, problem):
    (call,) = tool_calls(text, TOOLS)
    assert problem in call.problem


@pytest.mark.parametrize("text", ["", "The answer is 3.", '{"name": "ls"}', "```python\nprint(3)\n```", "tool_call"])
def test_text_without_a_call_has_none(text):
    assert tool_calls(text, TOOLS) == []


class Workspaces:
    """Scripted: each call gives the next result. It is its one workspace, too."""

    level = "sealed"
    tools = TOOLS

    def __init__(self, *results: ToolResult | Exception) -> None:
        self.results, self.calls, self.started, self.closed = list(results), [], [], 0

    def start(self, files: Any, test_command: str = "") -> Future[Any]:
        self.started.append((files, test_command))
        return settled(self)

    def call(self, tool: str, arguments: Any) -> Future[ToolResult]:
        self.calls.append((tool, arguments))
        return settled(self.results.pop(0))

    def end(self, declared: Declared) -> Future[EndState]:
        return settled(EndState({"made": b""}))

    def close(self) -> None:
        self.closed += 1


def environment(workspaces: Workspaces, **settings: Any) -> ToolEnvironment:
    made = ToolEnvironment(workspaces, {"a": b"1"}, TOOLS, **settings)
    assert made.start(item(), (0,)).result() == Observation(())
    return made


def contents(seen: Observation) -> list[str]:
    assert {message["role"] for message in seen.messages} <= {"tool"}
    return [message["content"] for message in seen.messages]


def test_calls_of_a_turn_are_made_in_order_and_each_result_is_read():
    workspaces = Workspaces(ToolResult("one"), ToolResult("two", is_error=True))
    seen = environment(workspaces, test_command="pytest").step(SHELL + written_call("read", {"path": "x"})).result()
    assert (contents(seen), seen.errors, seen.is_end) == (["one", "two"], 1, False)
    assert workspaces.calls == [("shell", {"command": "ls"}), ("read", {"path": "x"})]
    assert workspaces.started == [({"a": b"1"}, "pytest")]


def test_a_turn_without_a_call_ends_the_episode_and_what_it_left_is_carried_out():
    workspaces = Workspaces(ToolResult("one"))
    acting = environment(workspaces)
    assert acting.end().result() == EndState({"a": b"1"})  # nothing was started
    assert environment(workspaces, declared=Declared(("b*",))).end().result() == EndState({})
    acting.step(SHELL).result()
    assert acting.step("It is done.").result() == Observation((), is_end=True)
    left = acting.end().result()
    assert left == EndState({"made": b""}, changes="--- a\n+++ a\n@@ -1 +0,0 @@\n-1\n\\ no line break at the end")
    acting.close()
    assert workspaces.closed == 1


def test_malformed_calls_start_nothing_and_are_limited():
    workspaces = Workspaces()
    acting = environment(workspaces, most_malformed=1)
    first, second = (acting.step("<tool_call>ls</tool_call>").result() for _ in range(2))
    assert (first.errors, first.is_end) == (1, False)
    assert (second.is_end, second.ended_by) == (True, "malformed_calls")
    assert not workspaces.started


def test_a_turn_has_a_limited_number_of_calls():
    workspaces = Workspaces(*(ToolResult("") for _ in range(16)))
    seen = environment(workspaces).step(SHELL * 1000).result()
    assert (len(workspaces.calls), seen.errors) == (16, 1)
    assert "calls after the first 16 were not made" in contents(seen)[-1]


def test_a_limit_of_the_workspace_ends_the_episode_and_is_named():
    workspaces = Workspaces(ToolResult("...", is_error=True, ended_by="cpu_time", is_over=True))
    seen = environment(workspaces, test_command="pytest").step(SHELL + SHELL).result()
    assert (contents(seen), seen.is_end, seen.ended_by) == (["..."], True, "cpu_time")
    assert len(workspaces.calls) == 1


def test_a_fault_of_the_workspace_is_not_the_policys():
    with pytest.raises(SandboxFault):
        environment(Workspaces(SandboxFault("the cell died"))).step(SHELL).result()


def test_a_workspace_that_starts_after_the_episode_was_closed_is_closed():
    class Slow(Workspaces):
        def start(self, files: Any, test_command: str = "") -> Future[Any]:
            self.later = Future()
            return self.later

    workspaces = Slow(ToolResult("one"))
    acting = environment(workspaces)
    seen = acting.step(SHELL)
    acting.close()
    workspaces.later.set_result(workspaces)
    assert workspaces.closed == 1
    assert contents(seen.result()) == ["one"]
