"""Manifest of a folder of large files, by size and checksum: a lost or damaged file is found before it is used."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from autoclave.core.errors import CheckpointError
from autoclave.core.files import write_atomically

MANIFEST = "manifest.json"
FORMAT = "autoclave-manifest/1"

_PIECE = 1 << 20


def write_manifest(folder: Path) -> None:
    """Describe all files of `folder` in a file of it, which is there only when all others are: write it last.

    Raises:
        OSError: a file cannot be read. HostError: the disk is full or fails.
    """
    files = {path.name: {"bytes": path.stat().st_size, "crc32": _checksum(path)} for path in sorted(folder.iterdir())}
    write_atomically(folder / MANIFEST, json.dumps({"format": FORMAT, "files": files}, indent=1) + "\n")


def check_manifest(folder: Path) -> None:
    """Read every file of `folder` and compare it with what `write_manifest` found.

    Raises:
        CheckpointError: the manifest or a file is missing or damaged; the message begins with its path.
    """
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: (int(file["bytes"]), int(file["crc32"])) for name, file in content["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: damaged ({' '.join(str(error).split())[:120]})") from None
    for name, (size, checksum) in files.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        if path.stat().st_size != size:
            raise CheckpointError(f"{path}: damaged (it has {path.stat().st_size} bytes, written were {size})")
        if _checksum(path) != checksum:
            raise CheckpointError(f"{path}: damaged (its checksum is not that of what was written)")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum
