"""Sessions for asyncio: a thread of its own does the calls of each session, in order."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from autoclave.act.results import Change, Result
from autoclave.act.session import Session, session

T = TypeVar("T")


def async_session(root: Path | str, state: Path | str | None = None, **settings: Any) -> "AsyncSession":
    """Return a session for `async with`, with the arguments of `session`."""
    return AsyncSession(partial(session, root, state, **settings))


class AsyncSession:
    """The methods of `Session`, to be awaited.

    A call that has begun is completed even if its task is cancelled; `changes` shows it.
    """

    def __init__(self, opened: Callable[[], Session]) -> None:
        self._opened, self._worker = opened, ThreadPoolExecutor(1, "autoclave-act")

    async def __aenter__(self) -> Self:
        try:
            self._session = await self._do(self._opened)
        except BaseException:
            self._worker.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._do(self._session.close)
        self._worker.shutdown(wait=False)

    async def _do(self, function: Callable[..., T], *given: Any, **named: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(function, *given, **named))

    async def tools(self, form: Literal["openai", "anthropic"] = "openai") -> list[dict[str, Any]]:
        return await self._do(self._session.tools, form)

    async def call(self, name: str, arguments: Mapping[str, Any] | str = "{}") -> Result:
        return await self._do(self._session.call, name, arguments)

    async def changes(self, *, of_all_sessions: bool = False) -> list[Change]:
        return await self._do(self._session.changes, of_all_sessions=of_all_sessions)

    async def diff(self, action: str) -> str:
        return await self._do(self._session.diff, action)

    async def undo(self, *actions: str, **how: Any) -> list[str]:
        return await self._do(self._session.undo, *actions, **how)

    async def undo_to(self, savepoint: str, **how: Any) -> list[str]:
        return await self._do(self._session.undo_to, savepoint, **how)

    async def redo(self, action: str) -> Change:
        return await self._do(self._session.redo, action)

    async def savepoint(self, name: str = "") -> str:
        return await self._do(self._session.savepoint, name)

    async def commit(self, *actions: str) -> None:
        await self._do(self._session.commit, *actions)
