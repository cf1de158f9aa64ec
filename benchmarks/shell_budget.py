"""The process of `act shell --resident` with a clock on its parts, started by `observing.py`.

    python -c 'import shell_budget; shell_budget.main()' FOLDER ROOT TIMES

For each command, a line of JSON is added to the file TIMES: seconds by part, each without the parts within it.
"""

from __future__ import annotations

import functools
import importlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoclave.cli.act import resident_shell

_PARTS = {
    "command line": ["autoclave.cli.act.resident_shell:run_command_line"],
    "opening": ["autoclave.runtime.opening:open_session", "autoclave.runtime.session:Session.close"],
    "cell": ["autoclave.workspaces.command:_Cell.__init__", "autoclave.workspaces.command:_Cell.start"],
    "parts of the host": ["autoclave.workspaces.command:root_of"],
    "command": ["autoclave.workspaces.command:_Cell.watch"],
    "known files": ["autoclave.runtime.files.commands:scan_of", "autoclave.runtime.files.commands:secrets_in"],
    "git config": ["autoclave.runtime.files.commands:_git_identity"],
    "capture": ["autoclave.runtime.files.commands:captured", "autoclave.runtime.files.commands:remove_tree"],
    "claim": ["autoclave.runtime.files.commands:claim"],
    "surveys": ["autoclave.runtime.files.plans:surveys_of", "autoclave.runtime.files.plans:survey"],
    "changes of others": ["autoclave.act.shell:changed_since"],
    "journal": ["autoclave.runtime.journal:Journal._add", "autoclave.runtime.journal:Journal.seal"],
    "permissions": [
        f"autoclave.runtime.permissions:Permissions.{name}"
        for name in ("require_allowed", "require_any", "require_budget", "require_within", "use", "not_readable")
    ],
    "steps": ["autoclave.runtime.files.manager:take_steps", "autoclave.runtime.files.manager:FileManager.accept"],
    "planning": ["autoclave.runtime.session:Session.propose"],
    "applying": ["autoclave.runtime.session:Session.run"],
}

_spent: defaultdict[str, float] = defaultdict(float)
_within = [0.0]


def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*given: Any, **named: Any) -> Any:
        _within.append(0.0)
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spent = time.perf_counter() - began
            _spent[part] += spent - _within.pop()
            _within[-1] += spent

    return timed


def main() -> None:
    folder, root, times = map(Path, sys.argv[1:])
    for part, places in _PARTS.items():
        for place in places:
            module, _, path = place.partition(":")
            holder, name = importlib.import_module(module), path
            if "." in path:
                kind, name = path.split(".")
                holder = getattr(holder, kind)
            setattr(holder, name, clocked(part, getattr(holder, name)))
    run = resident_shell.run_command_line

    def run_and_tell() -> None:
        _spent.clear()
        try:
            run()
        finally:
            with times.open("a") as file:
                file.write(f"{json.dumps(_spent)}\n")

    resident_shell.run_command_line = run_and_tell
    resident_shell._serve(folder, root)


def told(times: Path) -> str:
    """Return the medians of the parts, in milliseconds, the largest first."""
    found = [json.loads(line) for line in times.read_text().splitlines()]
    medians = {part: 1000 * statistics.median(each.get(part, 0.0) for each in found) for part in _PARTS}
    parts = sorted(medians.items(), key=lambda each: -each[1])
    return f"{sum(medians.values()):.1f} ms in the process: " + ", ".join(f"{part} {ms:.1f}" for part, ms in parts)
