"""Requests of actions, planned or actual: accesses to resources, with amounts.

A resource is a path whose first part is its kind: `files/src/a.py`, `programs/make`, `packages/requests`,
`services/slack`. Later kinds bring their own first parts.
"""

import re
from dataclasses import dataclass

from autoclave.runtime.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class Access:
    """One use of one resource: `verb` is `read`, `create`, `modify`, `delete`, `rename`, `set_mode` of files,
    `run` of programs, `import` of packages, `use` of services by programs; `read`, `create`, `modify`, `delete`,
    `define` of tables in databases; `read`, `create`, `modify`, `delete` of resources of services.

    `inside`: resources below it that it affects as well; the counts include them. `spend` is in the service's own unit.
    """

    verb: str
    resource: str
    inside: tuple[str, ...] = ()
    files: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0
    rows: int = 0
    spend: float = 0.0
    holds_secret: bool = False
    """A private key is in the file that is read."""

    @property
    def resources(self) -> tuple[str, ...]:
        return (self.resource, *self.inside)


@dataclass(frozen=True, slots=True)
class Request:
    """The accesses of an action. `guarantee` is that of its undo."""

    accesses: tuple[Access, ...]
    guarantee: Guarantee = Guarantee.EXACT

    @property
    def weight(self) -> float:
        """The contribution to the uncommitted risk.

        One for an action whose undo is exact, and one more for each 100 files, 1,000 rows and 10 MB that it
        changes; twice as much for one whose undo is only equivalent, five times for a compensation, twenty times for
        one that cannot be undone.
        """
        files = sum(access.files for access in self.accesses)
        rows = sum(access.rows for access in self.accesses)
        num_bytes = sum(access.bytes_written + access.bytes_deleted for access in self.accesses)
        return _FACTORS[self.guarantee] * (1 + files // 100 + rows // 1000 + num_bytes // 10_000_000)


_FACTORS = {Guarantee.EXACT: 1.0, Guarantee.EQUIVALENT: 2.0, Guarantee.COMPENSATING: 5.0, Guarantee.NONE: 20.0}


MALFORMED = re.compile(r"\A[^/]*\Z|(?:\A|/)\.{0,2}(?:/|\Z)|\0")
"""Matches what is not a plain, unambiguous path."""
