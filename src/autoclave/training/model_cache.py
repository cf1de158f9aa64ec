"""Models that were made before, by what decides them. A model is whole in the cache or absent."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoclave.core.files import sync_directory
from autoclave.core.json import canonical_json


def cache_folder() -> Path:
    """Where models are kept: $AUTOCLAVE_CACHE, else the user's cache folder."""
    if given := os.environ.get("AUTOCLAVE_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autoclave"


def cached_model(
    key: Mapping[str, Any], make: Callable[[Path], None], *, fresh: bool, say: Callable[[str], None]
) -> Path:
    """The folder of the model that `key` decides; `make(folder)` writes it if it is not there, or if `fresh`."""
    folder = cache_folder() / "sft" / hashlib.sha256(canonical_json(dict(key))).hexdigest()[:16]
    if folder.is_dir() and not fresh:
        say(f"warm start: taken from {folder}")
        return folder
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        make(partial)
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.is_dir():  # else another run made the same meanwhile, and may be reading it
            partial.rename(folder)
            sync_directory(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
