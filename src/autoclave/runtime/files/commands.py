"""Commands and generated code over the folder of file actions: in a sealed cell, on a layer of their own.

The tree is the lower layer of an overlay whose upper folder lies in the stash, so the command writes there and the tree
stays as it is. Where the host cannot stack folders, the command gets a copy of the tree. What it wrote becomes steps
(see `capture.py`), which are taken when the action is run.
"""

from __future__ import annotations

from pathlib import Path

from autoclave.core import HostError
from autoclave.runtime.files.capture import Capture
from autoclave.runtime.files.operations import Command
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.interface import Json


class CommandRunner:
    """Runs commands over the folder of `scope`."""

    def __init__(self, scope: Scope, stash: Path) -> None:
        self._scope, self._stash = scope, stash

    def run(self, operation: Command, folder: Path) -> tuple[Capture, Json]:
        raise HostError("not yet")
