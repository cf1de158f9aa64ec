"""What an action asks for, or what it really did: accesses to resources, each with how much.

A resource is a path whose first part says of what kind it is: `files/src/a.py`, `programs/make`, `packages/requests`,
`services/slack`. Later kinds bring their own first parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from autoclave.runtime.interface import Guarantee


@dataclass(frozen=True, slots=True)
class Access:
    """One use of one resource: `verb` is `read`, `create`, `modify`, `delete`, `rename`, `set_mode` of files,
    `run` of programs, `import` of packages, `use` of services.

    `inside`: resources below it that it affects as well; the counts include them.
    """

    verb: str
    resource: str
    inside: tuple[str, ...] = ()
    files: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0

    @property
    def resources(self) -> tuple[str, ...]:
        """All that it affects."""
        return (self.resource, *self.inside)


@dataclass(frozen=True, slots=True)
class Request:
    """What an action asks for. `guarantee` is how good its undo is."""

    accesses: tuple[Access, ...]
    guarantee: Guarantee = Guarantee.EXACT

    @property
    def weight(self) -> float:
        """What it adds to the risk that stands uncommitted.

        One for an action that can be taken back exactly, and one more for each 100 files and each 10 MB that it
        changes; twice as much for one whose undo is only equivalent, five times for a compensation, twenty times for
        what cannot be taken back.
        """
        files = sum(access.files for access in self.accesses)
        num_bytes = sum(access.bytes_written + access.bytes_deleted for access in self.accesses)
        return _FACTORS[self.guarantee] * (1 + files // 100 + num_bytes // 10_000_000)


_FACTORS = {
    Guarantee.EXACT: 1.0,
    Guarantee.EQUIVALENT: 2.0,
    Guarantee.COMPENSATING: 5.0,
    Guarantee.NONE: 20.0,
}


def is_well_formed(resource: str) -> bool:
    """Whether a resource is a plain path, which means one thing only."""
    parts = resource.split("/")
    return len(parts) > 1 and not any(part in ("", ".", "..") for part in parts) and "\0" not in resource


def totals(accesses: Iterable[Access]) -> dict[str, Any]:
    """How much accesses come to."""
    found = {"files": 0, "bytes_written": 0, "bytes_deleted": 0}
    for access in accesses:
        found["files"] += access.files
        found["bytes_written"] += access.bytes_written
        found["bytes_deleted"] += access.bytes_deleted
    return found
