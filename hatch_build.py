"""Compile the optional C parts when the package is built, and put the recipes into the wheel.

Without a compiler, or with AUTOCLAVE_PURE=1, the wheel is a pure one and complete: `sandbox/guest/loops.py`,
`sandbox/streams.py`, `runtime/files/tree_digest.py` and `act/client.py` do the same in Python. `autoclave doctor`
reports which of the sandbox is in use.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    Path("src/autoclave/sandbox/guest/_cell.c"),
    Path("src/autoclave/sandbox/_streams.c"),
    Path("src/autoclave/core/_scan.c"),
)
PROGRAM = Path("src/autoclave/act/_hook.c")


class BuildWheel(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument]
    """Hatch runs it before it packs a wheel, and for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version != "editable":  # which finds them in the checkout
            build_data["force_include"]["recipes"] = "autoclave/recipes"
        sources = () if os.environ.get("AUTOCLAVE_PURE") == "1" else (*SOURCES, PROGRAM)
        modules = [module for source in sources if (module := self._compile(source))]
        if modules:
            build_data["artifacts"] += modules
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self, source: Path) -> str | None:
        """The module or program made of `source`, as a path in the project; None when that is not possible here."""
        module = source.with_suffix("" if source == PROGRAM else ".abi3.so")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        header = Path(sysconfig.get_path("include")) / "Python.h"
        if not shutil.which(compiler[0]) or not header.exists():
            self.app.display_warning(f"{module.name} is not built: needs {compiler[0]} and {header}; judging is slower")
            return None
        kind = [] if source == PROGRAM else ["-shared", "-fPIC", "-pthread", f"-I{header.parent}"]
        command = [*compiler, "-O2", *kind, "-o", str(module), str(source)]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{module.name} is not built: {done.stderr.strip()}")
            return None
        return str(module)
