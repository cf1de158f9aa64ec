"""What a person asks for on the page: a preview of an undo, and undo, redo, commit, discard and resolve.

Each is done with a session that is opened for it, so nothing is changed while another process works on the folder.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoclave.act.own import own_actions
from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.guarantee import Guarantee, worst
from autoclave.runtime.interface import Choice, NotPermitted
from autoclave.runtime.session import Session


def undo_preview(actions: Actions, chosen: Sequence[str]) -> dict[str, Any]:
    """Return what an undo of actions would undo, in order: with the later ones that depend on them. Reads records only.

    Raises InputError where one of them does not stand.
    """
    standing = {each.action: each for each in actions.standing_order()}
    for action in chosen:
        if action not in standing:
            state = actions.journal.standing(action).state
            raise InputError(f"action {action}: is {state}; only an action that stands can be undone")
    wanted, found = set(chosen), set[str]()
    since = list(itertools.dropwhile(lambda each: each not in wanted, standing))
    for action in since if set(since) != wanted else ():
        if action in wanted and action not in found:  # else its dependents are found already
            found |= set(actions.dependents(standing[action]))
    order = [each for each in reversed(since) if each in found | wanted]
    guarantees = [Guarantee(standing[each].proposed["guarantee"]) for each in order]
    return {
        "actions": order,
        "dependents": [each for each in order if each not in wanted],
        "guarantee": worst(guarantees) if guarantees else "",
    }


def obstacles_and_conflicts(session: Session, order: Sequence[str]) -> dict[str, Any]:
    """Return why actions cannot be undone, and what others have changed of what they left.

    `order`: their ids, the latest first.
    """
    actions = session.actions
    receipts = {action: actions.receipt(action) for action in order}
    managers = {action: actions.manager_of_action(action) for action in order}
    obstacles = {action: managers[action].obstacle(action, receipts[action]) for action in order}
    conflicts: list[dict[str, str]] = []
    for manager in {id(each): each for each in managers.values()}.values():
        own = [(action, receipts[action]) for action in order if managers[action] is manager]
        for action, names in manager.conflicts(own).items():
            conflicts += [{"action": action, "name": name, "key": key_of(name)} for name in names]
    return {
        "obstacles": [{"action": action, "reason": reason} for action, reason in obstacles.items() if reason],
        "conflicts": conflicts,
    }


def key_of(name: str) -> str:
    """Return the name of a conflict in a form that any client can send back, whatever bytes are in it."""
    return os.fsencode(name).hex()


def undo(session: Session, previewed: Sequence[str], savepoint: str | None, choices: Mapping[str, Choice]) -> list[str]:
    """Undo exactly the actions of a preview, all or none. `choices` are by the keys of conflicts.

    Raises InputError as `Session.undo`, and where a preview would name other actions now.
    """
    chosen = previewed if savepoint is None else own_actions(session.actions, None, savepoint)
    if differing := set(undo_preview(session.actions, chosen)["actions"]) ^ set(previewed):
        raise InputError(
            f"actions {', '.join(sorted(differing))}: came since the preview, or do not stand any more; nothing was "
            "undone. Fix: preview again; if agents are at work, stop them first"
        )
    names = {os.fsdecode(bytes.fromhex(key)): choice for key, choice in choices.items()}
    return session.undo(*previewed, choices=names)


def each_in_turn(actions: Sequence[str], do: Callable[[str], object]) -> dict[str, Any]:
    """Do something for each action up to the first that fails; return the ids of those done, and the error."""
    done: list[str] = []
    for action in actions:
        try:
            do(action)
        except AutoclaveError as error:
            if not done:
                raise
            return {"done": done, "error": message_of(error)}
        done.append(action)
    return {"done": done, "error": ""}


def message_of(error: AutoclaveError) -> str:
    """Return an error for the person who reads the page, with what would permit it."""
    hint = error.hint if isinstance(error, NotPermitted) else ""
    return f"{error}. Permitted by: {hint}" if hint else str(error)
