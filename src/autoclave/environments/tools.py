"""Tool calls in the text of a policy, and the environment that makes them in a workspace."""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

from autoclave.core import EndState, Observation, TaskItem
from autoclave.core.futures import chained, completed, linked
from autoclave.core.json import foreign_json
from autoclave.core.line_diff import Work, lines_of, unified
from autoclave.environments.state_grader import changed_files
from autoclave.workspaces import Declared, Tool, ToolResult, Workspace, Workspaces

_CALL = re.compile(
    r"<tool_call>(?P<tagged>.*?)(?:</tool_call>|(?P<cut>\Z))|^```tool[ \t]*\n(?P<fenced>.*?)(?:^```|(?P<open>\Z))",
    re.DOTALL | re.MULTILINE,
)
_OVER = Observation((), is_end=True)
_LONGEST_CHANGES = 20_000
"""Characters."""
_MOST_CALLS = 16
"""Of one turn."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call; with `problem`, which says what is wrong with it, it cannot be made."""

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    problem: str = ""


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return a tool as chat templates and chat completions take it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def described(tools: Sequence[Tool]) -> str:
    """Return tools and the form of calls as text, for chat templates that have no place for them."""
    lines = [json.dumps(schema_of(tool)["function"]) for tool in tools]
    form = '```tool\n{"name": "NAME", "arguments": {"NAME": "VALUE"}}\n```'
    return "\n".join(["You may call these tools:", *lines, f"To call one, write:\n{form}"])


def written_call(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Return a call as text, in the form of `tool_calls`. Arguments may be JSON already, also damaged."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = f'{{"name": {json.dumps(name)}, "arguments": {given}}}'
    return "<tool_call>\n{}\n</tool_call>".format(call.replace("</", "<\\/"))  # a tag in a string ends no call


def tool_calls(text: str, tools: Sequence[Tool]) -> list[ToolCall]:
    """Return the calls in a turn, in order: JSON in `<tool_call>` tags or in a block fenced as `tool`.

    A turn that is one JSON object with the name of a tool is a call too, as some chat templates ask for.
    """
    found = split_calls(text, tools)[1]
    if not found and text.lstrip().startswith("{") and not (whole := _call(text, tools)).problem:
        return [whole]
    return found


def split_calls(text: str, tools: Sequence[Tool] | None = None) -> tuple[str, list[ToolCall]]:
    """Return a turn without its calls, and these, of `tools`, or of any tool; of a damaged call what is wrong."""
    calls = [
        ToolCall(problem="the call has no end")
        if each["cut"] is not None or each["open"] is not None
        else _call(each["tagged"] or each["fenced"] or "", tools)
        for each in _CALL.finditer(text)
    ]
    return _CALL.sub("", text).strip(), calls


def _call(text: str, tools: Sequence[Tool] | None) -> ToolCall:
    try:
        found = foreign_json(text)
    except ValueError as error:
        return ToolCall(problem=f"the call is not JSON: {error}")
    if not isinstance(found, dict):
        return ToolCall(problem='the call must be a JSON object with "name" and "arguments"')
    call = cast("dict[str, Any]", found)
    name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
    known = [str(name)] if tools is None else [tool.name for tool in tools]
    if name not in known:
        return ToolCall(problem=f"name = {str(name)[:80]!r}: there is no such tool; must be one of {', '.join(known)}")
    if not isinstance(arguments, dict):
        return ToolCall(problem=f"{name}: arguments must be a JSON object")
    return ToolCall(name, cast("dict[str, Any]", arguments))


class ToolEnvironment:
    """An episode whose policy calls tools of a workspace, until a turn without a call.

    The workspace is started by the first call that can be made. After more than `most_malformed` calls that cannot be
    made the episode ends. `tools`, which the policy is told, may lack some. `test_command` is that of `run_tests`.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        files: Mapping[str, bytes],
        tools: Sequence[Tool],
        declared: Declared | None = None,
        *,
        test_command: str = "",
        tells_tools: bool = True,
        most_malformed: int = 3,
    ) -> None:
        self.tools = tools if tells_tools else ()
        self._workspaces, self._files, self._callable = workspaces, files, tools
        self._declared, self._left, self._test_command = declared or Declared(), most_malformed, test_command
        self._workspace: Workspace | None = None
        self._is_closed = False

    def start(self, item: TaskItem, seed: tuple[int, ...]) -> Future[Observation]:
        return completed(Observation(()))

    def step(self, action: str) -> Future[Observation]:
        calls = tool_calls(action, self._callable)
        if len(calls) > _MOST_CALLS:
            calls = [*calls[:_MOST_CALLS], ToolCall(problem=f"calls after the first {_MOST_CALLS} were not made")]
        if not calls:
            return completed(_OVER)
        if self._workspace or all(call.problem for call in calls):
            return self._make(calls, [])
        started = self._workspaces.start(self._files, self._test_command)
        return linked(started, lambda done: self._started(done.result(), calls))

    def _started(self, workspace: Workspace, calls: Sequence[ToolCall]) -> Future[Observation]:
        self._workspace = workspace
        if self._is_closed:
            workspace.close()
        return self._make(calls, [])

    def _make(self, calls: Sequence[ToolCall], results: list[ToolResult]) -> Future[Observation]:
        """Make calls one after the other; return all their results."""
        if not calls or (results and results[-1].is_over) or self._left < 0:
            return completed(self._observation(results))
        call, *rest = calls
        if call.problem:
            self._left -= 1
            return self._make(rest, [*results, ToolResult(call.problem, is_error=True)])
        assert self._workspace
        made = self._workspace.call(call.name, call.arguments or {})
        return linked(made, lambda done: self._make(rest, [*results, done.result()]))

    def _observation(self, results: Sequence[ToolResult]) -> Observation:
        limit = "malformed_calls" if self._left < 0 else results[-1].ended_by if results[-1].is_over else ""
        return Observation(
            tuple({"role": "tool", "content": result.text} for result in results),
            is_end=self._left < 0 or results[-1].is_over,
            ended_by=limit,
            errors=sum(result.is_error for result in results),
        )

    def end(self) -> Future[EndState | None]:
        if self._workspace is None:
            return completed(
                EndState({path: each for path, each in self._files.items() if self._declared.covers(path)})
            )
        return chained(self._workspace.end(self._declared), self._with_changes)

    def _with_changes(self, left: EndState) -> EndState | None:
        lines, work = list[str](), Work()
        for path in sorted(changed_files(self._files, left.files)):
            sides = [files.get(path, b"")[:_LONGEST_CHANGES] for files in (self._files, left.files)]
            old, new = (lines_of(side.decode(errors="replace")) for side in sides)
            if self._declared.covers(path) and path not in left.left_out:
                lines += unified(old, new, path if path in self._files else "/dev/null", path, work)
        return replace(left, changes="\n".join(lines)[:_LONGEST_CHANGES])

    def close(self) -> None:
        self._is_closed = True
        if self._workspace:
            self._workspace.close()
