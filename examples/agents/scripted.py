"""A scripted agent with the official client of the Model Context Protocol: it calls the tools of `autoclave act mcp`.

python examples/agents/scripted.py project calls.jsonl

Each line of the second file is a call: ["write", {"path": "notes.txt", "content": "v1"}].
"""

import json
import os
import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters


async def work(root: str, calls: list[tuple[str, dict[str, object]]]) -> None:
    """Make the calls, and print what a model would get."""
    arguments = ["act", "mcp", "--root", root, "--session", "agent"]
    server = StdioServerParameters(command="autoclave", args=arguments, env=dict(os.environ))
    async with Client(server) as client:
        for name, given in calls:
            answer = await client.call_tool(name, given)
            print(name, json.dumps(given, ensure_ascii=False))
            for content in answer.content:
                print("   ", getattr(content, "text", content.type))


if __name__ == "__main__":
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    anyio.run(work, sys.argv[1], [tuple(json.loads(line)) for line in lines])
