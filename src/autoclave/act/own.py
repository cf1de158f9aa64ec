"""Actions of one session among those of all sessions on a state."""

import time
from collections.abc import Sequence

from autoclave.core import InputError, UsageError
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.session import Session


def require_not_stopped(session: Session) -> None:
    """Raise NotPermitted while a grant of `act stop` denies everything to a session."""
    now = time.time()
    for each in session.permissions.grants():
        is_whole = "**" in each.resources and "*" in each.verbs and not each.excluded
        if each.effect == "forbid" and is_whole and not each.is_over(now):
            hint = f"grant {each.id} forbids everything; you can undo on the command line, or revoke it"
            raise NotPermitted("undo is not permitted: the user stopped this session", hint)


def session_of(session: Session, action: str) -> str:
    """Return the name of the session that did an action."""
    return str(session.journal.standing(action).proposed["session"])


def own_actions(actions: Actions, name: str | None, savepoint: str | None = None) -> list[str]:
    """Return the actions of the session `name` (None: of all) that stand, in the order of their execution.

    `savepoint`: only those since its latest savepoint of that name. Raises UsageError where it has none.
    """
    numbers = [0]
    if savepoint is not None:
        records = [each for each in actions.journal.records(savepoint) if each.kind == "savepoint"]
        numbers = [each.number for each in records if name in (None, each.body["session"])]
    if not numbers:
        raise UsageError(
            f"savepoint {savepoint!r}: {f'session {name!r} has none of that name' if name else 'there is none'}"
        )
    order = (each for each in actions.standing_order() if each.number > numbers[-1])
    return [each.action for each in order if name in (None, each.proposed["session"])]


def require_own(session: Session, name: str, *actions: str) -> None:
    """Raise InputError where an action is of another session than `name`."""
    for action in actions:
        if (other := session_of(session, action)) != name:
            raise InputError(f"action {action}: is of session {other!r}, which can show and undo it, as can a user")


def require_independent(session: Session, name: str, chosen: Sequence[str]) -> None:
    """Raise InputError where later actions of other sessions than `name` depend on `chosen`; names them."""
    for action in chosen:
        later = {each: session_of(session, each) for each in session.dependents_of(action)}
        if others := [f"{each} of session {who!r}" for each, who in later.items() if who != name]:
            raise InputError(f"action {action}: {', '.join(others)} came later and depend on it; nothing was undone")
