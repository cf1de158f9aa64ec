"""Trusted cells that stay open after one program for the next: the check of a problem is prepared once for a group."""

import threading
from dataclasses import dataclass
from functools import partial
from typing import Self
from weakref import WeakKeyDictionary

from autoclave.sandbox import Cell, Limits, Profile, Runner, Sandbox


@dataclass(frozen=True, slots=True)
class Held:
    """Content and limits of a cell, as `Sandbox.open` takes them."""

    content: bytes
    profile: Profile
    limits: Limits
    runner: Runner


class LentCell:
    """A spare cell in use. At the end it is kept for the next program, or closed if it changed or something failed."""

    def __init__(self, spare: "SpareCells", sandbox: Sandbox, held: Held, cell: Cell) -> None:
        self.cell = cell
        self.is_as_before = True
        self._keep = partial(spare.keep, sandbox, held, cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self.is_as_before:
            self._keep()
        else:
            self.cell.__exit__(kind, error, trace)


class SpareCells:
    """At most one cell per sandbox waits here. Only for cells in which no program ever runs.

    Each test is a process of its own that ends with all it started, on a file system of its own, so a test cannot
    affect the next. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: WeakKeyDictionary[Sandbox, tuple[Held, Cell]] = WeakKeyDictionary()

    def take(self, sandbox: Sandbox, held: Held) -> LentCell:
        """Lend a cell of exactly this content: the spare one of this sandbox, or a new one.

        Raises HostError: a package or path of the profile is missing on this host. SandboxFault: no cell could be made.
        """
        with self._lock:
            found = self._cells.pop(sandbox, None)
        if found and found[0] == held:
            return LentCell(self, sandbox, held, found[1])
        if found:
            found[1].close()
        cell = sandbox.open(held.content, held.profile, held.limits, held.runner)
        return LentCell(self, sandbox, held, cell)

    def keep(self, sandbox: Sandbox, held: Held, cell: Cell) -> None:
        """Keep an unchanged cell for the next program."""
        with self._lock:
            replaced = self._cells.pop(sandbox, None)
            self._cells[sandbox] = held, cell
        if replaced:
            replaced[1].close()

    def close(self) -> None:
        with self._lock:
            cells = [cell for _, cell in self._cells.values()]
            self._cells.clear()
        for cell in cells:
            cell.close()
