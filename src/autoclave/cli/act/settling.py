"""`autoclave act undo`, `redo`, `commit`, `mark`, `resolve`, `release` and `withdraw`."""

from __future__ import annotations

from pathlib import Path

import click

from autoclave.cli.act.common import on_folder, opened, words
from autoclave.core import InputError

_CHOICES = ("refuse", "skip", "force", "save_aside")
_SETTLED = ("executed", "failed", "undone", "undo_failed")


@click.command()
@click.argument("action", required=False)
@click.option("--to", "mark_name", help="Take back all that was done since this mark.")
@click.option("--group", type=int, help="Take back a group, by the number that `list` shows.")
@click.option("--dependents", is_flag=True, help="Also later actions that depend on it.")
@click.option(
    "--on-conflict",
    type=click.Choice(_CHOICES),
    default="refuse",
    show_default=True,
    help="What becomes of what somebody else has changed since: nothing is undone; it stays; it is taken back all the "
    "same (theirs is kept for a redo); theirs gets another name.",
)
@click.option("--choose", multiple=True, metavar="PATH=CHOICE", help="Likewise for one path; may be given again.")
@on_folder
def undo(
    action: str | None,
    mark_name: str | None,
    group: int | None,
    dependents: bool,
    on_conflict: str,
    choose: tuple[str, ...],
    root: Path,
    state: Path | None,
    name: str,
) -> None:
    """Take back an action, a group, or all since a mark. What somebody else changed since is never lost.

    \b
    Example: autoclave act undo 3f2a9c01 --root project
    """
    from autoclave.runtime.interface import Choice

    if sum(each is not None for each in (action, mark_name, group)) != 1:
        raise InputError("act undo: give the name of an action, or --to MARK, or --group NUMBER")
    choices = {path: Choice(choice) for path, choice in map(_choice, choose)}
    settled = {"choices": choices, "on_conflict": Choice(on_conflict)}
    with opened(root, state, name) as session:
        if mark_name is not None:
            names = session.undo_to(mark_name, **settled)
        elif group is not None:
            names = session.undo_group(group, **settled)
        else:
            names = session.undo(action or "", dependents=dependents, **settled)
        for each in names:
            click.echo(f"undone: {each}  {words(session.journal.standing(each).proposed['operation'])}")


def _choice(given: str) -> tuple[str, str]:
    path, _, choice = given.rpartition("=")
    if not path or choice not in _CHOICES:
        raise InputError(f"--choose {given!r}: must be PATH=CHOICE, one of {', '.join(_CHOICES)}")
    return path, choice


@click.command()
@click.argument("action")
@on_folder
def redo(action: str, root: Path, state: Path | None, name: str) -> None:
    """Do again what was undone.

    \b
    Example: autoclave act redo 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        session.redo(action)


@click.command()
@click.argument("actions", nargs=-1, required=True)
@on_folder
def commit(actions: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Keep what actions did for good; what they moved aside is removed.

    \b
    Example: autoclave act commit 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        for action in actions:
            session.commit(action)


@click.command()
@click.argument("mark_name", metavar="NAME")
@on_folder
def mark(mark_name: str, root: Path, state: Path | None, name: str) -> None:
    """Give this moment a NAME, for `undo --to NAME`.

    \b
    Example: autoclave act mark before-cleaning --root project
    """
    with opened(root, state, name) as session:
        session.mark(mark_name)


@click.command()
@click.argument("action")
@click.option("--as", "settled", type=click.Choice(_SETTLED), help="How it stands.  [default: it is looked at again]")
@click.option("--reason", help="With --as: what was looked at; it is recorded.")
@on_folder
def resolve(action: str, settled: str | None, reason: str | None, root: Path, state: Path | None, name: str) -> None:
    """Find out how an action stands that is in doubt, or say it (--as) after somebody has looked; nothing is changed
    then.

    \b
    Example: autoclave act resolve 3f2a9c01 --as failed --reason "the file is the old one" --root project
    """
    from autoclave.runtime.states import ActionState

    if (settled is None) != (reason is None):
        raise InputError("act resolve: --as and --reason go together; without them it is looked at again")
    with opened(root, state, name) as session:
        if settled is None or reason is None:
            standing = session.look_again(action)
        else:
            standing = session.resolve(action, ActionState(settled), reason)
        click.echo(f"{action}  {standing.state}")


@click.command()
@on_folder
def release(root: Path, state: Path | None, name: str) -> None:
    """Do what was run and held for a time, as far as that time is over.

    \b
    Example: autoclave act release --root project
    """
    with opened(root, state, name) as session:
        for standing in session.release():
            click.echo(f"{standing.action}  {words(standing.proposed['operation'])}")


@click.command()
@click.argument("actions", nargs=-1, required=True)
@on_folder
def withdraw(actions: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Give up actions that were proposed, or are held, before anything has happened.

    \b
    Example: autoclave act withdraw 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        for action in actions:
            click.echo(f"{action}  {session.withdraw(action).state}")
