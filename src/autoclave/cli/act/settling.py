"""`autoclave act undo`, `redo`, `commit`, `savepoint`, `resolve`, `flush` and `discard`."""

from pathlib import Path

import click

from autoclave.cli.act.common import acting, on_folder, say, words
from autoclave.core import InputError

_CHOICES = ("refuse", "skip", "force", "save_aside")
_SETTLED = ("executed", "failed", "undone", "undo_failed")


@click.command()
@click.argument("actions", nargs=-1)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Undo the last N actions that stand.")
@click.option("--all", "is_all", is_flag=True, help="Undo all actions that stand.")
@click.option("--to", "savepoint_name", metavar="SAVEPOINT", help="Undo all actions since this savepoint.")
@click.option("--group", type=int, help="Undo a group, by the number that `list` shows.")
@click.option("--dependents", is_flag=True, help="Also undo later actions that depend on them.")
@click.option(
    "--on-conflict",
    type=click.Choice(_CHOICES),
    default="refuse",
    show_default=True,
    help="If a path has been changed by others since: undo nothing; leave the path; undo it anyway, keeping "
    "their version for a redo; or save their version under another name.",
)
@click.option(
    "--choose", multiple=True, metavar="PATH=CHOICE", help="The same for one path; may be given several times."
)
@on_folder
def undo(
    actions: tuple[str, ...],
    last: int | None,
    is_all: bool,
    savepoint_name: str | None,
    group: int | None,
    dependents: bool,
    on_conflict: str,
    choose: tuple[str, ...],
    root: Path,
    state: Path | None,
    name: str,
) -> None:
    """Undo actions, a group, or all since a savepoint: all of them or none. Later changes by others are never lost.

    With --session, --last, --all and --to mean the actions and savepoints of that session alone.

    \b
    Example: autoclave act undo 3f2a9c01 --root project
    """
    from autoclave.act.own import own_actions, require_independent
    from autoclave.runtime.interface import Choice

    if sum((bool(actions), last is not None, is_all, savepoint_name is not None, group is not None)) != 1:
        raise InputError("act undo: give ids of actions, or one of --last N, --all, --to SAVEPOINT and --group NUMBER")
    choices = {path: Choice(choice) for path, choice in map(_choice, choose)}
    settled = {"choices": choices, "on_conflict": Choice(on_conflict)}
    with acting(root, state, name) as session:
        if group is not None:
            ids = session.undo_group(group, **settled)
        elif savepoint_name is not None and name == "main":
            ids = session.undo_to(savepoint_name, **settled)
        else:
            who = None if name == "main" else name
            order = own_actions(session.actions, who, savepoint_name)
            chosen = actions or (order[-last:] if last else order)
            if who and not actions:
                require_independent(session, who, chosen)
            ids = session.undo(*chosen, dependents=dependents, **settled)
        for each in ids:
            say(f"undone: {each}  {words(session.journal.standing(each).proposed['operation'])}")


def _choice(given: str) -> tuple[str, str]:
    path, _, choice = given.rpartition("=")
    if not path or choice not in _CHOICES:
        raise InputError(f"--choose {given!r}: must be PATH=CHOICE, one of {', '.join(_CHOICES)}")
    return path, choice


@click.command()
@click.argument("actions", nargs=-1)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Redo the N actions that were undone last.")
@on_folder
def redo(actions: tuple[str, ...], last: int | None, root: Path, state: Path | None, name: str) -> None:
    """Do undone actions again, one by one, up to the first that fails.

    --last takes them in the reverse order of their undo; with --session, those of that session alone.

    \b
    Example: autoclave act redo --last 1 --root project
    """
    from autoclave.runtime.states import ActionState

    if bool(actions) == (last is not None):
        raise InputError("act redo: give ids of actions, or --last N")
    with acting(root, state, name) as session:
        undone = sorted(session.journal.standings((ActionState.UNDONE,)), key=lambda each: -each.number)
        own = [each.action for each in undone if name in ("main", each.proposed["session"])]
        for each in actions or own[:last]:
            say(f"redone: {each}  {words(session.redo(each).proposed['operation'])}")


@click.command()
@click.argument("actions", nargs=-1, required=True)
@on_folder
def commit(actions: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Make actions permanent and remove their pre-images; they cannot be undone any more.

    \b
    Example: autoclave act commit 3f2a9c01 --root project
    """
    with acting(root, state, name) as session:
        for action in actions:
            session.commit(action)


@click.command()
@click.argument("savepoint_name", metavar="NAME")
@on_folder
def savepoint(savepoint_name: str, root: Path, state: Path | None, name: str) -> None:
    """Record a savepoint, for `undo --to NAME`. No session may have one of that name.

    \b
    Example: autoclave act savepoint before-cleaning --root project
    """
    with acting(root, state, name) as session:
        session.savepoint(savepoint_name)


@click.command()
@click.argument("action")
@click.option("--as", "settled", type=click.Choice(_SETTLED), help="Its state.  [default: read from the resource]")
@click.option("--reason", help="With --as: what you checked; recorded in the journal.")
@on_folder
def resolve(action: str, settled: str | None, reason: str | None, root: Path, state: Path | None, name: str) -> None:
    """Settle an action that is in doubt: by reading the resource again, or by --as, which changes nothing else.

    \b
    Example: autoclave act resolve 3f2a9c01 --as failed --reason "the file is the old one" --root project
    """
    from autoclave.runtime.states import ActionState

    if (settled is None) != (reason is None):
        raise InputError("act resolve: --as and --reason go together; without them the resource is read again")
    with acting(root, state, name) as session:
        if settled is None or reason is None:
            standing = session.check_again(action)
        else:
            standing = session.resolve(action, ActionState(settled), reason)
        say(f"{action}  {standing.state}")


@click.command()
@on_folder
def flush(root: Path, state: Path | None, name: str) -> None:
    """Execute the queued actions whose delay has passed.

    \b
    Example: autoclave act flush --root project
    """
    with acting(root, state, name) as session:
        for standing in session.run_queued():
            say(f"{standing.action}  {words(standing.proposed['operation'])}")


@click.command()
@click.argument("actions", nargs=-1, required=True)
@on_folder
def discard(actions: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Discard actions that were proposed or are queued, before anything has happened.

    \b
    Example: autoclave act discard 3f2a9c01 --root project
    """
    with acting(root, state, name) as session:
        for action in actions:
            say(f"{action}  {session.discard(action).state}")
