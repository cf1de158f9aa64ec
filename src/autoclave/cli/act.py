"""`autoclave act`: file actions that can be taken back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.core import DataError, InputError

if TYPE_CHECKING:
    from autoclave.runtime.session import Proposal, Session

_FOLDER = click.Path(path_type=Path)
_DAMAGED = 1


@click.group(no_args_is_help=True)
def act() -> None:
    """Do what was proposed to the files of a folder, and take it back.

    Every action is in a journal before it happens. What it takes out of the folder is moved aside, not copied, so that
    an undo restores content, owner, modes, times, extended attributes and hard links exactly.

    \b
    Example: autoclave act run changes.jsonl --root project
    """


def _on_folder(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--state",
        type=_FOLDER,
        help="Folder of the journal, and of what was moved aside; on the same file system.  "
        "[default: .autoclave-NAME beside the folder]",
    )(command)
    return click.option("--root", type=_FOLDER, required=True, help="The folder that actions are confined to.")(command)


def _session(root: Path, state: Path | None) -> Session:
    from autoclave.runtime.opening import open_session

    session = open_session(root, state)
    for action in session.recovered:
        standing = session.journal.standing(action)
        click.echo(f"action {action} was unfinished when a process died; it is {standing.state} now", err=True)
    return session


@act.command()
@click.argument("file", type=click.Path(path_type=Path))
@_on_folder
def plan(file: Path, root: Path, state: Path | None) -> None:
    """Show what each operation of FILE would do to the folder as it is. Nothing is recorded.

    FILE has an operation per line; `-` is standard input.

    \b
    Example: autoclave act plan changes.jsonl --root project
    """
    with _session(root, state) as session:
        for _, given in _operations(file):
            found = session.plan(given)
            click.echo(f"{found.digest[:12]}  {_words(given)}")
            for change in found.changes:
                click.echo(f"    {change.verb} {change.resource!r}" + (f" -> {change.to!r}" if change.to else ""))


@act.command()
@click.argument("file", type=click.Path(path_type=Path))
@_on_folder
def propose(file: Path, root: Path, state: Path | None) -> None:
    """Plan each operation of FILE and record it, for `run ACTION`. Nothing is done.

    \b
    Example: autoclave act propose changes.jsonl --root project
    """
    with _session(root, state) as session:
        for where, given in _operations(file):
            _told(_proposed(session, where, given), given)


@act.command()
@click.argument("target")
@_on_folder
def run(target: str, root: Path, state: Path | None) -> None:
    """Do a proposed action, or propose and do each operation of a file in turn, up to the first that cannot be done.

    TARGET is the name of an action or a file (`-`: standard input).

    \b
    Example: autoclave act run changes.jsonl --root project
    """
    with _session(root, state) as session:
        if target != "-" and not Path(target).exists():
            standing = session.journal.standing(target)
            session.run(target, standing.proposed["plan"], approved_by="command line")
            click.echo(f"{target}  {_words(standing.proposed['operation'])}")
            return
        for where, given in _operations(Path(target)):
            proposal = _proposed(session, where, given)
            session.run(proposal.action, proposal.plan.digest, approved_by="command line")
            click.echo(f"{proposal.action}  {_words(given)}")


@act.command(name="list")
@_on_folder
@click.option("--json", "as_json", is_flag=True, help="A line of JSON per action.")
def list_actions(root: Path, state: Path | None, as_json: bool) -> None:
    """Show all actions and where they stand.

    \b
    Example: autoclave act list --root project
    """
    with _session(root, state) as session:
        for each in session.journal.standings():
            if as_json:
                told = {"action": each.action, "state": each.state, "at": each.at, **each.proposed}
                click.echo(json.dumps(told))
            else:
                click.echo(f"{each.action}  {each.state:<14}{_words(each.proposed['operation'])}")


@act.command()
@click.argument("action")
@_on_folder
def show(action: str, root: Path, state: Path | None) -> None:
    """Show all that is recorded of an action, as JSON lines.

    \b
    Example: autoclave act show 3f2a9c01 --root project
    """
    with _session(root, state) as session:
        session.journal.standing(action)
        for record in session.journal.records(action):
            click.echo(json.dumps({"number": record.number, "at": record.at, "kind": record.kind, **record.body}))


@act.command()
@click.argument("action", required=False)
@click.option("--to", "mark", help="Take back all that was done since this mark.")
@click.option("--dependents", is_flag=True, help="Also later actions that touched the same.")
@_on_folder
def undo(action: str | None, mark: str | None, dependents: bool, root: Path, state: Path | None) -> None:
    """Take an action back, or all since a mark. What somebody else changed since is never overwritten.

    \b
    Example: autoclave act undo 3f2a9c01 --root project
    """
    if (action is None) == (not mark):
        raise InputError("act undo: give the name of an action, or --to MARK")
    with _session(root, state) as session:
        names = session.undo_to(mark) if mark else session.undo(action or "", dependents=dependents)
        for name in names:
            click.echo(f"undone: {name}  {_words(session.journal.standing(name).proposed['operation'])}")


@act.command()
@click.argument("action")
@_on_folder
def redo(action: str, root: Path, state: Path | None) -> None:
    """Do again what was undone.

    \b
    Example: autoclave act redo 3f2a9c01 --root project
    """
    with _session(root, state) as session:
        session.redo(action)


@act.command()
@click.argument("actions", nargs=-1, required=True)
@_on_folder
def commit(actions: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Keep what actions did for good; what they moved aside is removed.

    \b
    Example: autoclave act commit 3f2a9c01 --root project
    """
    with _session(root, state) as session:
        for action in actions:
            session.commit(action)


@act.command()
@click.argument("name")
@_on_folder
def mark(name: str, root: Path, state: Path | None) -> None:
    """Give this moment a NAME, for `undo --to NAME`.

    \b
    Example: autoclave act mark before-cleaning --root project
    """
    with _session(root, state) as session:
        session.mark(name)


@act.command()
@_on_folder
def audit(root: Path, state: Path | None) -> None:
    """Look whether the journal is as it was written: altered, inserted, removed, truncated, rewritten or forged.

    Exit code 1 when it is not.

    \b
    Example: autoclave act audit --root project
    """
    with _session(root, state) as session:
        findings = session.audit()
        count = len(session.journal.records())
    for finding in findings:
        click.echo(f"{finding.damage} at record {finding.number}")
    if findings:
        sys.exit(_DAMAGED)
    click.echo(f"{count} records, as they were written")


def _operations(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    from autoclave.core.files import read_jsonl

    if str(file) != "-":
        yield from read_jsonl(file, "operations")
        return
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        try:
            yield f"standard input:{number}", json.loads(line)
        except ValueError as error:
            raise DataError(f"standard input:{number}: not JSON ({error})") from None


def _proposed(session: Session, where: str, given: dict[str, Any]) -> Proposal:
    try:
        return session.propose(given, by="command line")
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix('operation: ')}") from None


def _told(proposal: Proposal, given: dict[str, Any]) -> None:
    click.echo(f"{proposal.action}  {proposal.plan.digest[:12]}  {_words(given)}")


def _words(given: Mapping[str, Any]) -> str:
    """An operation in a line: what it does, to what."""
    other = given.get("to") or given.get("target")
    return f"{given['do']} {given['path']!r}" + (f" -> {other!r}" if other else "")
