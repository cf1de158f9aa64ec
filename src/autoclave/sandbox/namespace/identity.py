"""Under which user ids the processes of a cell run, seen from inside and from the host.

As root every zygote gets two ids of its own, which nobody else on the host has: one for the first process of its cells
and one for tests. An ordinary user can map only the own id, so both share it and the kernel keeps them apart otherwise.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TEST_ID = 1000
"""The user and group of a program, as it sees itself."""
_FIRST = 0x70000000
_PAIRS = 1 << 20
_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class Identity:
    """`range`: the judge maps two ids from `base`; `single`: the zygote maps the id it runs under."""

    kind: Literal["range", "single"]
    base: int = 0

    @property
    def id_map(self) -> str:
        return f"0 {self.base} 1\n{TEST_ID} {self.base + 1} 1\n"


def new_identity() -> Identity:
    """Ids that no other zygote of this host uses, as far as we may choose them."""
    if os.geteuid() != 0:
        return Identity("single")
    pair = (os.getpid() * 64 + next(_counter) % 64) % _PAIRS
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, length = (int(number) for number in line.split())
        if inside <= _FIRST and inside + length >= _FIRST + 2 * _PAIRS:
            return Identity("range", _FIRST + 2 * pair)
        if length >= 65536:  # a container: take ids from the far end of what it was given
            return Identity("range", inside + length - 2 * (pair % 8192) - 2)
    return Identity("single")


def write_id_maps(pid: int, identity: Identity) -> None:
    """Give the user namespace of process `pid` its ids.

    Raises:
        OSError: the kernel refuses the map.
    """
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(identity.id_map)
