"""Compile the optional C part of the sandbox when the package is built, if there is a compiler.

Without one the package is complete: `sandbox/guest/loops.py` does the same in Python. `autoclave doctor` says which is
in use.
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

GUEST = Path("src/autoclave/sandbox/guest")
MODULE = "_cell.abi3.so"


class CompileGuest(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument]
    """Hatch runs it before it packs a wheel, and for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / GUEST
        if not self._compile(folder / "_cell.c", folder / MODULE):
            return
        build_data["artifacts"].append(f"{GUEST}/{MODULE}")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self, source: Path, target: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        header = Path(sysconfig.get_path("include")) / "Python.h"
        if not shutil.which(compiler[0]) or not header.exists():
            self.app.display_warning(f"{MODULE} is not built: needs {compiler[0]} and {header}; the sandbox is slower")
            return False
        command = [*compiler, "-O2", "-shared", "-fPIC", f"-I{header.parent}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{MODULE} is not built: {done.stderr.strip()}")
        return done.returncode == 0
