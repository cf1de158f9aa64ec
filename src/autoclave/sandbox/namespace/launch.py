"""Start zygotes that confine themselves by Linux namespaces: no daemon and no privilege needed."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autoclave.config.levels import Level
from autoclave.core import SandboxFault
from autoclave.sandbox.cgroups import Place, find_place, remove_stale_groups
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.interface import Profile
from autoclave.sandbox.launch import Meter
from autoclave.sandbox.namespace.root import PACKAGES_FOLDER, base_interpreter, root_plan
from autoclave.sandbox.zygote_process import ZygoteProcess

TEST_ID = 1000
"""User and group of a program inside of its cell."""
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
    """Return ids that no other zygote of this host uses, as far as this process may choose them."""
    if os.geteuid() != 0:
        return Identity("single")
    pair = (os.getpid() * 64 + next(_counter) % 64) % _PAIRS
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, length = (int(number) for number in line.split())
        if inside <= _FIRST and inside + length >= _FIRST + 2 * _PAIRS:
            return Identity("range", _FIRST + 2 * pair)
        if length >= 65536:  # a container: take ids from the far end of its range
            return Identity("range", inside + length - 2 * (pair % 8192) - 2)
    return Identity("single")


def write_id_maps(pid: int, identity: Identity) -> None:
    """Give the user namespace of process `pid` its ids. Raises OSError: the kernel refuses the map."""
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(identity.id_map)


class NamespaceLauncher:
    """Zygotes in namespaces of their own, with a read-only root."""

    level: Level = "sealed"

    def __init__(self, place: Place | None = None, *, use_compiled: bool = True) -> None:
        """`place` is where control groups are made: by default wherever this process may.

        Groups that killed judging processes left there are removed. `use_compiled=False` leaves the compiled part of
        the guest alone, as where it could not be built.
        """
        self._executable = base_interpreter()
        root_plan(self._executable)
        self._use_compiled = use_compiled
        self._place = find_place() if place is None else place
        if self._place.is_usable:
            remove_stale_groups(self._place)

    def launch(self, profile: Profile) -> "NamespaceZygote":
        with named_faults("a zygote cannot be started"):
            identity = new_identity()
        plan = self._plan(profile, identity)
        process = ZygoteProcess(self._executable, self._place, use_compiled=self._use_compiled)
        return NamespaceZygote(process, plan, identity)

    def _plan(self, profile: Profile, identity: Identity) -> dict[str, Any]:
        root = root_plan(self._executable, profile.packages, profile.paths)
        return {
            "confinement": "sealed",
            "search_path": [PACKAGES_FOLDER] if profile.packages else [],
            "binds": root.binds,
            "placed": root.placed,
            "masks": root.masks,
            "links": root.links,
            "scratch": root.scratch,
            "ids": identity.kind,
            "test_id": TEST_ID,
        }


class NamespaceZygote:
    """A zygote process on this host."""

    def __init__(self, process: ZygoteProcess, plan: dict[str, Any], identity: Identity) -> None:
        self.control = process.control
        self.plan = plan
        self._process = process
        self._identity = identity

    def map_ids(self) -> None:
        try:
            write_id_maps(self._process.pid, self._identity)
        except OSError as error:
            raise SandboxFault(f"cannot map user ids: {error}") from None

    def meter(self, first_process: Callable[[], int]) -> Meter:
        return self._process.meter(first_process)

    def last_words(self) -> str:
        return self._process.last_words()

    def kill(self) -> None:
        self._process.kill()
