"""Messages about libraries that are missing."""

import contextlib
import json
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from autoclave.core.errors import HostError


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from the checkout, wheel or repository it came from.

    Installers record the origin in `direct_url.json`. Autoclave is on no package index, so without a record, or when
    the checkout or wheel is gone, the reader has to fill in the URL of a clone.
    """
    try:
        recorded = distribution("autoclave").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    origin: dict[str, Any] = json.loads(recorded or "{}")
    url: str = origin.get("url", "")
    path = unquote(urlsplit(url).path)
    if vcs := origin.get("vcs_info"):
        return f'pip install "autoclave[{extra}] @ {vcs["vcs"]}+{url}@{vcs["commit_id"]}"'
    if not url.startswith("file:") or not Path(path).exists():
        return f'pip install "autoclave[{extra}] @ git+URL" with the URL of your clone'
    return f'pip install {"-e " if origin.get("dir_info", {}).get("editable") else ""}"{path}[{extra}]"'


@contextlib.contextmanager
def needing(what: str, extra: str) -> Generator[None]:
    """Run a block that imports. Raises HostError where a library is missing, which `what` needs and `extra` has."""
    try:
        yield
    except ImportError as error:
        fix = install_command(extra)
        raise HostError(f"{what}: {error.name or error} is not installed here. Fix: {fix}") from None
