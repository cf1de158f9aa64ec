"""Checks of what actions need from this host. Leaves nothing behind."""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoclave.core import AutoclaveError, IsolationError
from autoclave.core.install import install_command
from autoclave.runtime.files.steps import rename_problem
from autoclave.runtime.opening import default_state
from autoclave.workspaces import overlay_problem


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `detail` says what was found, or what it is needed for."""

    name: str
    is_present: bool
    is_required: bool
    detail: str
    fix: str


def examine(root: Path, state: Path | None = None) -> Iterator[Check]:
    """Try what actions on the folder `root` with a state in `state` need."""
    place = state or default_state(root)
    beside = next((each for each in (place, *place.resolve().parents) if each.is_dir()), Path("/"))
    is_same = root.is_dir() and root.stat().st_dev == beside.stat().st_dev
    is_usable = is_same and os.access(beside, os.W_OK)
    detail = f"{root} and {place}" if is_same else "what an action takes out of the folder is moved there at once"
    fix = f"give a folder on the file system of {root} that you may write to (--state)"
    yield Check("state on the file system of the folder", is_usable, True, detail, fix)
    if is_usable:
        with tempfile.TemporaryDirectory(dir=beside, prefix=".autoclave-trial-") as trial:
            yield from _tried(Path(trial))
    git = shutil.which("git")
    yield Check("git", bool(git), False, git or "`act export --git` writes the history as a repository", "install git")
    yield _libraries("services and the vault", ("cryptography", "httpx", "h11", "authlib", "jsonschema_rs"), "runtime")
    yield _libraries("databases", ("apsw", "psycopg", "pglast", "sqlglot"), "databases")


def _libraries(name: str, modules: Sequence[str], extra: str) -> Check:
    missing = [each for each in modules if importlib.util.find_spec(each) is None]
    detail = f"{', '.join(missing)} missing" if missing else ", ".join(modules)
    return Check(f"libraries for {name}", not missing, False, detail, install_command(extra))


def _tried(trial: Path) -> Iterator[Check]:
    problem = rename_problem(trial)
    detail = problem or "a file is replaced and put back in one step"
    fix = "use a file system that knows renameat2, such as ext4, xfs, btrfs or tmpfs"
    yield Check("exchange of two names at once", not problem, True, detail, fix)
    try:
        problem, is_sealed = overlay_problem(trial), True
    except (IsolationError, AutoclaveError) as error:
        problem, is_sealed = str(error), False
    detail = "commands and generated code run in them, never on the host" if is_sealed else problem
    yield Check("sealed cells for commands", is_sealed, False, detail, "`autoclave doctor` says what is missing")
    detail = problem or "a command changes a layer of its own; without it the folder is copied for each"
    fix = "use a folder that is not itself on an overlay, such as a volume of the container"
    yield Check("overlay on this file system", is_sealed and not problem, False, detail, fix)
