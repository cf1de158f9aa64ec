"""A solver for Inspect whose tools act on a folder; what each sample did is undone after it was scored.

Give each sample a folder in its metadata: `Sample(input="...", metadata={"folder": "project"})`.
"""

import asyncio
from collections.abc import Callable

from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolDef, ToolError, ToolParams

import autoclave.act as act


def tool_of(session: act.Session, tool: act.Tool) -> ToolDef:
    """Return a tool of a session for Inspect."""

    async def execute(**arguments: object) -> str:
        result = await asyncio.to_thread(session.call, tool.name, arguments)
        if result.is_error:
            raise ToolError(result.text)
        return result.text

    return ToolDef(execute, tool.name, tool.description, ToolParams.model_validate(tool.parameters))


@solver
def on_folder(judge: Callable[[TaskState], object]) -> Solver:
    """Let the model act on the folder of the sample; `judge` sees the folder before it is restored."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        with act.session(state.metadata["folder"], allow=["files/**"]) as session:
            state.tools = [tool_of(session, each).as_tool() for each in session.tool_list()]
            state = await generate(state, tool_calls="loop")
            judge(state)
            session.undo(all=True)
        return state

    return solve
