"""Shared parts of the commands of `autoclave act`: the folder they work on, and operations in a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.opened_vault import PASSPHRASE_FILE, default_vault, opened_vault
from autoclave.core import InputError
from autoclave.core.json import parse_object

if TYPE_CHECKING:
    from autoclave.runtime.connections import VaultPlace
    from autoclave.runtime.journal import Standing
    from autoclave.runtime.session import Session
    from autoclave.runtime.vault import Vault

FOLDER = FILE = click.Path(path_type=Path)


def on_folder(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--root`, `--state` and `--session`."""
    command = click.option(
        "--session", "name", default="main", show_default=True, help="What its actions and grants are recorded under."
    )(command)
    return on_state(command)


def on_state(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--root` and `--state`."""
    command = click.option(
        "--state",
        type=FOLDER,
        help="Folder of the journal, and of what was moved aside; on the same file system.  "
        "[default: .autoclave-NAME beside the folder]",
    )(command)
    return click.option("--root", type=FOLDER, required=True, help="The folder that actions are confined to.")(command)


def opened(root: Path, state: Path | None, name: str = "main", **others: Any) -> Session:
    """A session; what a process that died had left unfinished is told."""
    from autoclave.runtime.opening import open_session

    def open_vault(place: VaultPlace, record: Any) -> Vault:
        return opened_vault(Path(place.path), place.key, record)

    usual = default_vault()
    outside = [path for path in (usual, usual.with_name(f"{usual.name}.key")) if path.exists()]
    outside += [Path(os.environ[PASSPHRASE_FILE])] if os.environ.get(PASSPHRASE_FILE) else []
    session = open_session(root, state, name=name, open_vault=open_vault, kept_outside=outside, **others)
    for action in session.recovered:
        standing = session.journal.standing(action)
        click.echo(f"action {action} was unfinished when a process died; it is {standing.state} now", err=True)
    return session


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


def printable(line: str) -> str:
    """A line that does nothing to a terminal but show."""
    return "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line)


def words(given: Mapping[str, Any]) -> str:
    """An operation in a line: what it does, to what."""
    if given["do"] == "sql":
        return f"sql on {given['database']}: {'; '.join(given['statements'])[:100]}"
    if given["do"] == "commands":
        return f"commands on {given['database']}: {'; '.join(map(' '.join, given['commands']))[:100]}"
    if given["do"] == "request":
        what = given.get("operation") or f"{given.get('method')} {given.get('path')}"
        return f"request to {given['service']}: {what}"
    if given["do"] == "run":
        return f"run {' '.join(given['command'])[:100]!r}"
    if given["do"] == "python":
        return f"python {given['source'].strip().splitlines()[0][:80] if given['source'].strip() else ''!r}"
    other = given.get("to") or given.get("target")
    return f"{given['do']} {given['path']!r}" + (f" -> {other!r}" if other else "")


def tell_of_hold(standing: Standing) -> None:
    """Say of an action that is held how to have it done, or not."""
    if standing.state == "approved" and (held_s := standing.body["hold_s"]):
        click.echo(
            f"    held for {held_s:g} s: `act release` does it then, `act withdraw {standing.action}` gives it up"
        )


def named(where: str, error: InputError) -> InputError:
    """The error with the place where the operation was given, and for the person at the terminal what would help."""
    told = type(error)(f"{where}: {str(error).removeprefix('operation: ')}")
    if hint := getattr(error, "hint", ""):
        told = InputError(f"{told}. What would permit it: {hint}")
    return told
