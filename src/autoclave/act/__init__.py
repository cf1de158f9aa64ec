"""Reversible actions for programs and agents: sessions with tools for a model, undo, and Python functions as actions.

    import autoclave.act as act

    with act.session("project", allow=["files/**"]) as session:
        tools = session.tools("openai")
        result = session.call("write", {"path": "notes.txt", "content": "v2"})
        session.undo(result.action)

The work is done by `autoclave.runtime`, in which every action is planned, checked by grants and journalled.
"""

from autoclave.act.aio import AsyncSession, async_session
from autoclave.act.functions import reversible
from autoclave.act.results import Change, Result
from autoclave.act.session import Session, session
from autoclave.act.tools import Tool

__all__ = ["AsyncSession", "Change", "Result", "Session", "Tool", "async_session", "reversible", "session"]
