"""Changing the connections of a state folder: databases, services, managers, the vault."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave.core.json import validated
from autoclave.runtime.connections import Connections, load_connections, save_connections
from autoclave.runtime.opening import alone_on, require_files_outside

if TYPE_CHECKING:
    from autoclave.runtime.vault.vault import Vault


@contextlib.contextmanager
def changing_connections(
    root: Path,
    state: Path | None,
    vault: "Vault | None" = None,
    *,
    where: str,
    is_removal: bool = False,
    wait_s: float = 0.0,
) -> Generator[dict[str, Any]]:
    """Yield the connections as plain data, and save them as the block leaves them. `vault`: the one that is connected.

    Raises InputError, which begins with `where`, if they are not valid, or have files within `root`.
    """
    with alone_on(root, state, wait_s=wait_s) as place:
        told = load_connections(place).model_dump(mode="json", exclude_defaults=True)
        yield told
        connections = validated(Connections, told, where)
        if not is_removal:
            require_files_outside(root, connections, vault)
        save_connections(place, connections)
