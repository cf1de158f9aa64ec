"""Programs without tests, from whichever protocol: their turn, their limits, and what may be said when it fails."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Callable, Mapping

from autoclave.core import HostError, InputError, SandboxFault
from autoclave.judge import RunResult
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, busy
from autoclave.service.requests import repaired_apart

FAULT = "the judge could not run it; nothing follows about the program"


async def run_in_turn(parts: Parts, run: Callable[[], RunResult], *, patience_s: float | None = None) -> RunResult:
    """What `run` gives, once there is room for it, which is waited for so long.

    Raises:
        Refused: there is no room, the server is about to end, or the program cannot be run.
    """
    parts.dispatcher.require_accepting()
    async with contextlib.AsyncExitStack() as inside:
        try:
            async with asyncio.timeout(patience_s):
                await inside.enter_async_context(parts.turns)
        except TimeoutError:
            raise busy("too many runs wait; there will be room later", 1.0) from None
        try:
            return await asyncio.to_thread(run)
        except HostError as error:
            raise Refused(501, "host", repaired_apart(error)) from None
        except InputError as error:
            raise bad_input(str(error)) from None
        except SandboxFault:
            raise Refused(500, "fault", FAULT) from None


def time_limit_of(parts: Parts, wanted_s: float | None, name: str = "time_limit_s") -> float:
    """CPU seconds that a run gets.

    Raises:
        Refused: it asks for more than the server allows.
    """
    greatest_s = parts.config.judge.time_limit_range[1]
    if wanted_s is not None and wanted_s > greatest_s:
        raise bad_input(f"{name} = {wanted_s:g}: this server allows {greatest_s:g} (judge.time_limit_range)")
    return wanted_s or min(parts.config.judge.default_time_limit_s, greatest_s)


def require_memory(parts: Parts, wanted_mb: float | None, name: str = "memory_limit_mb") -> None:
    """Check a limit of memory.

    Raises:
        Refused: it is more than the server allows.
    """
    greatest_mb = parts.config.sandbox.memory_limit_mb
    if wanted_mb is not None and wanted_mb > greatest_mb:
        raise bad_input(f"{name} = {wanted_mb:g}: this server allows {greatest_mb} (sandbox.memory_limit_mb)")


def decoded(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Contents of files that came as base64.

    Raises:
        Refused: one is no base64.
    """
    contents: dict[str, bytes] = {}
    for number, (path, content) in enumerate(files.items()):
        try:
            contents[path] = base64.b64decode(content or "", validate=True)
        except (binascii.Error, ValueError):
            raise bad_input(f"files: the content of file {number} is no base64") from None
    return contents


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Contents of files as base64."""
    return {path: base64.b64encode(content).decode("ascii") for path, content in files.items()}
