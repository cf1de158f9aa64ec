"""The image of cells: names to mount on and symbolic links, made from what `root_plan` found. No file has content."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import tarfile
from functools import cache
from pathlib import PurePosixPath

from autoclave.sandbox.container.engine import Engine
from autoclave.sandbox.namespace.root import RootPlan

_log = logging.getLogger(__name__)
_REPOSITORY = "localhost/autoclave-cell"
OWN_FOLDERS = ("/tmp", "/program", "/judge", "/proc", "/sys", "/dev")
"""Paths at which the engine or the sandbox mounts something."""


@cache
def image_for(engine: Engine, plan: RootPlan) -> str:
    """The name of the image for `plan`. Made by the engine when it is not there.

    Raises:
        SandboxFault: the engine does not take it.
    """
    content = image_content(plan)
    name = f"{_REPOSITORY}:{hashlib.sha256(content).hexdigest()[:16]}"
    if engine.attempt("image", "inspect", name).returncode != 0:
        _log.info("making the container image %s", name)
        engine.run("import", "-", name, stdin=content)
    return name


def image_content(plan: RootPlan) -> bytes:
    """A tar archive; the same for the same plan."""
    links = {link: target for link, target in plan.links if not link.startswith("/dev/")}
    shown = [(path, path) for path in plan.binds] + list(plan.placed)
    files = {target for source, target in shown if os.path.isfile(source)}
    folders = {target for source, target in shown if os.path.isdir(source)} | set(OWN_FOLDERS)
    folders |= {str(parent) for path in [*links, *files, *folders] for parent in PurePosixPath(path).parents} - {"/"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folders):
            _add(archive, path, tarfile.DIRTYPE)
        for path in sorted(files):
            _add(archive, path, tarfile.REGTYPE)
        for link, target in sorted(links.items()):
            _add(archive, link, tarfile.SYMTYPE, target)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, kind: bytes, target: str = "") -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.linkname, entry.mode = kind, target, 0o755
    archive.addfile(entry)
