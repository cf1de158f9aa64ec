"""Forget actions that need not be kept any longer to be redone or run. What stands is never among them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from autoclave.core import HostError
from autoclave.runtime.actions import Actions

_DAY_S = 86_400.0
_NUM_FORGOTTEN = 64
"""How many actions are looked at before each action for whether they are too old to be kept."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept. What stands is kept until it is committed, whatever these say."""

    num_bytes: int = 10 << 30
    """Of all actions together. What can be forgotten goes first; when what stands alone needs more, nothing new is
    done."""
    redo_s: float = 30 * _DAY_S
    """How long what was undone can be redone, what failed is kept, and what was proposed can be run."""

    def make_room(self, actions: Actions, action: str = "") -> None:
        """Forget what is too old, and from the oldest on until the quota holds, of other actions than `action`.

        Raises HostError where what stands alone takes more than the quota.
        """
        kept, oldest = actions.journal.kept_bytes(), time.time() - self.redo_s
        for each in actions.journal.forgettable(action, -1 if kept > self.num_bytes else _NUM_FORGOTTEN):
            if each.at < oldest or (kept > self.num_bytes and each.num_bytes):
                actions.discard(each.action, actions.manager_of_action(each.action), "retention")
                kept -= each.num_bytes
        if kept > self.num_bytes:
            raise HostError(
                f"{kept} bytes are kept to undo what stands, more than the quota of {self.num_bytes}. "
                "Fix: commit actions that shall stay, or raise the quota"
            )
