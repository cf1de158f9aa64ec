"""Services for one session: nobody else of ours acts on them meanwhile, wherever their state is.

A lock file for each base URL, in a folder that all sessions of a user share. It ends with the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path

from autoclave.core.files import alone_with


def folder_of_leases() -> Path:
    """Where the lock files are: in the user's state folder."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "autoclave" / "services"


@contextlib.contextmanager
def lease_of_services(base_urls: Iterable[str], folder: Path | None = None) -> Generator[None]:
    """Have services, by their base URLs, for the length of the block.

    Raises:
        InputError: another session has one of them.
    """
    place = folder or folder_of_leases()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as held:
        for url in sorted(set(base_urls)):  # in one order: two sessions never wait for each other's
            name = hashlib.sha256(url.encode()).hexdigest()[:32]
            complaint = f"service {url}: another session works on it; wait for it, or end it"
            held.enter_context(alone_with(place / name, complaint))
        yield
