"""Models that were made before, by what decides them. A model is whole in the cache or absent."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoclave.core.files import cache_folder, sync_directory
from autoclave.core.json import canonical_json


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
