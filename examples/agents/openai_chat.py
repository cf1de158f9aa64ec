"""An agent with the client of OpenAI: its tools act on a folder, and what it did is undone.

OPENAI_API_KEY=... python examples/agents/openai_chat.py project "Rename notes.txt to todo.txt"

`OPENAI_BASE_URL` and `OPENAI_MODEL` name another server with that API, and its model.
"""

import os
import sys
from typing import Any

from openai import OpenAI

import autoclave.act as act


def work(session: act.Session, task: str) -> str:
    """Have the model call tools until it is done; return what it says last."""
    client, model = OpenAI(), os.environ.get("OPENAI_MODEL", "gpt-5")
    tools: Any = session.tools("openai")
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        answer = client.chat.completions.create(model=model, messages=messages, tools=tools)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            result = session.call(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
        if not message.tool_calls:
            return message.content or ""


if __name__ == "__main__":
    with act.session(sys.argv[1], allow=["files/**"]) as opened:
        print(work(opened, sys.argv[2]))
        for change in opened.changes():
            print(change)
        if input("Undo all of it? [y/N] ") == "y":
            opened.undo(all=True)
