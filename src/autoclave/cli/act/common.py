"""Shared parts of the commands of `autoclave act`: the folder they work on, and operations in a line."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.opened_vault import PASSPHRASE_FILE, default_vault, opened_vault
from autoclave.cli.main import printable
from autoclave.core import DataError, IncompleteError, InputError, UsageError
from autoclave.core.json import parse_object

if TYPE_CHECKING:
    from autoclave.runtime.actions import Actions
    from autoclave.runtime.connections import VaultPlace
    from autoclave.runtime.journal import Standing
    from autoclave.runtime.permissions import Permissions
    from autoclave.runtime.session import Session
    from autoclave.runtime.vault import Vault

FOLDER = FILE = click.Path(path_type=Path)
_WAIT_S = 5.0
"""Seconds to wait for a session that works on the folder."""


def on_folder(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--root`, `--state` and `--session`."""
    command = click.option(
        "--session", "name", default="main", show_default=True, help="Name under which actions and grants are recorded."
    )(command)
    return on_state(command)


def on_state(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--root` and `--state`."""
    command = click.option(
        "--state",
        type=FOLDER,
        help="Folder of the journal and the stash, on the same file system.  "
        "[default: .autoclave-NAME beside the folder]",
    )(command)
    return click.option("--root", type=FOLDER, required=True, help="The folder that actions are confined to.")(command)


@contextlib.contextmanager
def acting(root: Path, state: Path | None, name: str, **others: Any) -> Generator[Session]:
    """A session as `opened` gives it, in which work that fails or is denied ends with exit code 1.

    Raises UsageError, InputError: what was given is wrong (exit code 2). IncompleteError: it could not be done.
    """
    with opened(root, state, name, **others) as session:
        try:
            yield session
        except (UsageError, DataError):
            raise
        except InputError as error:
            raise IncompleteError(f"{error}") from None


def opened(root: Path, state: Path | None, name: str = "main", **others: Any) -> Session:
    """A session; what a process that died had left unfinished is told."""
    from autoclave.runtime.opening import open_session

    session = open_session(root, state, name=name, lives_on=False, wait_s=_WAIT_S, **vault_settings(), **others)
    for action in session.recovered:
        standing = session.journal.standing(action)
        click.echo(f"action {action} was unfinished or in doubt; it is {standing.state} now", err=True)
    return session


def vault_settings() -> dict[str, Any]:
    """Return arguments of `open_session`: how to open the connected vault, and what must be outside of the folder."""

    def open_vault(place: VaultPlace, record: Any) -> Vault:
        return opened_vault(Path(place.path), place.key, record)

    usual = default_vault()
    outside = [path for path in (usual, usual.with_name(f"{usual.name}.key")) if path.exists()]
    outside += [Path(os.environ[PASSPHRASE_FILE])] if os.environ.get(PASSPHRASE_FILE) else []
    return {"open_vault": open_vault, "kept_outside": outside}


@contextlib.contextmanager
def recorded(root: Path, state: Path | None, name: str = "main") -> Generator[tuple[Actions, Permissions]]:
    """Yield the actions and permissions of a folder, also beside a session that works on it; see `open_records`."""
    from autoclave.runtime.opening import open_records

    with open_records(root, state, name=name) as found:
        yield found


def operations(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """`(where, operation)` for each line of a file, or of standard input (`-`). No number is rounded: it is refused."""
    from autoclave.core.files import read_jsonl

    if str(file) != "-":
        yield from read_jsonl(file, "operations", is_exact=True)
        return
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            where = f"standard input:{number}"
            yield where, parse_object(line, where, is_exact=True)


def require_of_agent(name: str) -> None:
    """Raise UsageError where an agent would get the session of the command line, whose actions it could undo."""
    if name == "main":
        raise UsageError("--session main: is the session of your command line; give the agent another name")


def say(line: str, *, err: bool = False) -> None:
    """Print a line, so that it does nothing to a terminal but show."""
    click.echo(printable(line), err=err)


def say_json(told: Mapping[str, Any]) -> None:
    """Print a line of JSON without control characters."""
    click.echo(json.dumps(told).replace("\x7f", "\\u007f"))


def say_output(output: Mapping[str, Any]) -> None:
    """Print how a command ended, what it changed (if that is part of its output), and the last of what it printed."""
    for change in output.get("changes", ()):
        say(f"    not done: {change}")
    if "exit_code" in output:
        say(f"    {output['ended']} {output['exit_code']}" if output["ended"] == "exited" else f"    {output['ended']}")
    for name, mark in (("stdout", "|"), ("stderr", "!")):
        for line in str(output.get(name, "")).splitlines()[-20:]:
            say(f"    {mark} {line}")
    for name in ("content", "entries", "matches"):
        found = output.get(name, ())
        for line in found.splitlines() if isinstance(found, str) else found:
            say(f"    {line}")


def say_undo(given: Mapping[str, Any]) -> None:
    """Print the undo that an operation brings, if any."""
    if undo := given.get("undo"):
        say(f"    undo: {(undo if isinstance(undo, str) else ' '.join(undo))[:200]}")


def words(given: Mapping[str, Any]) -> str:
    """An operation in a line: what it does, to what."""
    from autoclave.act.results import words

    return words(given)


def tell_of_hold(standing: Standing) -> None:
    """Print how to execute or discard a queued action."""
    if standing.state == "approved" and (delay_s := standing.body["delay_s"]):
        say(f"    queued for {delay_s:g} s: `act flush` executes it then, `act discard {standing.action}` drops it")


def named(where: str, error: InputError) -> InputError:
    """The error with the place where the operation was given, and for the person at the terminal what would help."""
    told = f"{where}: {str(error).removeprefix('operation: ')}"
    hint = getattr(error, "hint", "")
    return type(error)(f"{told}. What would permit it: {hint}" if hint else told)
