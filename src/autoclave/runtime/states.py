"""The states of an action and of its undo, and their transitions. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from autoclave.core import InputError


class ActionState(StrEnum):
    """States of an action."""

    PROPOSED = "proposed"
    """It was planned, and nothing has happened."""
    APPROVED = "approved"
    """It may be run, at once or after its delay in the outbox."""
    EXECUTING = "executing"
    """It has begun; what it changes is known and saved."""
    EXECUTED = "executed"
    """It is done, and can be undone."""
    READ = "read"
    """It is done, and only read: there is nothing to undo."""
    FAILED = "failed"
    """It was not done: what it had changed was put back, or it was discarded before."""
    IN_DOUBT = "in_doubt"
    """It is unknown how far it got. It is settled when its resource shows that, or by a user."""
    COMMITTED = "committed"
    """It is permanent."""
    UNDOING = "undoing"
    """It is being undone."""
    UNDONE = "undone"
    """It was undone, and that was verified."""
    UNDO_FAILED = "undo_failed"
    """It could not be undone, and stands."""
    UNDO_IN_DOUBT = "undo_in_doubt"
    """It is unknown how far its undo got. It is settled when its resource shows that, or by a user."""
    REDOING = "redoing"
    """It is being redone."""
    REDONE = "redone"
    """It was redone, and can be undone again."""


_S = ActionState
FOLLOWING: Mapping[ActionState, frozenset[ActionState]] = {
    _S.PROPOSED: frozenset({_S.APPROVED, _S.READ, _S.FAILED, _S.EXECUTED}),  # executed: others did it; it was observed
    _S.READ: frozenset(),
    _S.APPROVED: frozenset({_S.EXECUTING, _S.FAILED}),
    _S.EXECUTING: frozenset({_S.EXECUTED, _S.FAILED, _S.IN_DOUBT}),
    _S.EXECUTED: frozenset({_S.COMMITTED, _S.UNDOING}),
    _S.FAILED: frozenset(),
    _S.IN_DOUBT: frozenset({_S.EXECUTED, _S.REDONE, _S.FAILED, _S.UNDONE}),  # undone: a redo that did nothing
    _S.COMMITTED: frozenset(),
    _S.UNDOING: frozenset({_S.UNDONE, _S.UNDO_FAILED, _S.UNDO_IN_DOUBT}),
    _S.UNDONE: frozenset({_S.REDOING}),
    _S.UNDO_FAILED: frozenset({_S.UNDOING, _S.COMMITTED}),
    _S.UNDO_IN_DOUBT: frozenset({_S.UNDONE, _S.UNDO_FAILED}),
    _S.REDOING: frozenset({_S.REDONE, _S.UNDONE, _S.IN_DOUBT}),
    _S.REDONE: frozenset({_S.COMMITTED, _S.UNDOING}),
}
"""The states that may follow each state."""
UNFINISHED = frozenset({_S.EXECUTING, _S.UNDOING, _S.REDOING})
"""States in which a process works on an action, or has died."""
IN_DOUBT = frozenset({_S.IN_DOUBT, _S.UNDO_IN_DOUBT})
"""States in which the outcome is unknown."""
STANDING = frozenset({_S.EXECUTED, _S.REDONE, _S.UNDO_FAILED})
"""States in which an action is done, and may be undone or committed."""
UNDO_TRIED = frozenset({_S.UNDOING, _S.UNDO_FAILED, _S.UNDO_IN_DOUBT})
"""States of an undo that has not happened: the action keeps its place in the order."""


def require_step(action: str, state: ActionState | None, wanted: ActionState) -> None:
    """Raise InputError if an action may not go from a state (None: it does not exist yet) to `wanted`."""
    allowed = {ActionState.PROPOSED} if state is None else FOLLOWING[state]
    if wanted not in allowed:
        stands = "does not exist" if state is None else f"is {state}"
        raise InputError(f"action {action}: {stands}, so it cannot become {wanted}")
