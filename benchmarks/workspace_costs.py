"""What a workspace costs: its start when warm, and a shell call over the same command run bare. For `episodes.py`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from harness import sized

from autoclave.workspaces import Declared, LocalWorkspaces

_FILES = {f"package/module_{number}.py": b"x = 1\n" * 100 for number in range(10)}
_SHELL = shutil.which("bash") or "sh"


def workspace_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Return milliseconds, p50 and p99, over episodes of four calls each, every one beside a bare command."""
    starts, calls, overheads, ends = list[float](), list[float](), list[float](), list[float]()
    workspaces = LocalWorkspaces()
    try:
        for _ in range(1 + sized(options, 250, 50, 2)):
            start, workspace = _timed(workspaces.start(_FILES).result)
            starts.append(start)
            for _ in range(4):
                bare = _timed(lambda: subprocess.run([_SHELL, "-c", "true"], capture_output=True, check=True))[0]
                calls.append(_timed(workspace.call("shell", {"command": "true"}).result)[0])
                overheads.append(calls[-1] - bare)
            ends.append(_timed(workspace.end(Declared()).result)[0])
    finally:
        workspaces.close()
    figures = {"workspace_start": starts[1:], "shell_call": calls[4:], "shell_overhead": overheads[4:]}
    figures["workspace_end"] = ends[1:]
    return {
        f"{name}{suffix}_ms": sorted(times)[int(share * len(times))]
        for name, times in figures.items()
        for suffix, share in (("", 0.5), ("_p99", 0.99))
    }


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = act()
    return (time.perf_counter() - began) * 1000, result
