"""An agent of the OpenAI Agents SDK with the MCP server: its tools act on a folder, and what it did is undone.

OPENAI_API_KEY=... python examples/agents/openai_agents_sdk.py project "Rename notes.txt to todo.txt"

`OPENAI_BASE_URL` and `OPENAI_MODEL` name another server with the chat API of OpenAI, and its model.
"""

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

import autoclave.act as act


async def work(session: act.Session, task: str) -> str:
    """Have the agent act in a session, by a server of the same name; return what it says last."""
    set_tracing_disabled(True)  # traces are sent to OpenAI
    model = OpenAIChatCompletionsModel(os.environ.get("OPENAI_MODEL", "gpt-5"), AsyncOpenAI())
    words = ["-m", "autoclave", "act", "mcp", "--root", str(session.root), "--session", session.name]
    server = MCPServerStdio({"command": sys.executable, "args": words}, client_session_timeout_seconds=60)
    async with server:
        result = await Runner.run(Agent(name="worker", model=model, mcp_servers=[server]), task)
    return str(result.final_output)


if __name__ == "__main__":
    with act.session(sys.argv[1], name="agent", allow=["files/**"]) as opened:
        print(asyncio.run(work(opened, sys.argv[2])))
        for change in opened.changes():
            print(change)
        if input("Undo all of it? [y/N] ") == "y":
            opened.undo(all=True)
