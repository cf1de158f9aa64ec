"""`autoclave act compensations`: what undoes operations of services, and what a user says of it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autoclave.cli.act.common import on_folder, opened
from autoclave.cli.main import printable
from autoclave.core import InputError

if TYPE_CHECKING:
    from autoclave.runtime.rest.manager import RestManager
    from autoclave.runtime.session import Session


@click.group(no_args_is_help=True)
def compensations() -> None:
    """Show the compensating requests of services, and record what you know of them.

    A compensating request is proven when the service showed afterwards what it had shown before, and is quarantined
    when it once did not.

    \b
    Example: autoclave act compensations list --root project
    """


@compensations.command(name="list")
@on_folder
def list_compensations(root: Path, state: Path | None, name: str) -> None:
    """Show each compensating request: its name, the operation that it undoes, its guarantee, and what is known of it.

    \b
    Example: autoclave act compensations list --root project
    """
    with opened(root, state, name) as session:
        manager = _services(session)
        known = manager.declared_compensations()
        for key, (operation, compensation) in known.items():
            reason = compensation.learnt.reason
            click.echo(printable(f"{key}  {operation} -> {compensation.told}{f': {reason}' if reason else ''}"))
        for key, learnt in manager.compensations.all().items():
            if key not in known:
                reason = f": {learnt.reason}" if learnt.reason else ""
                click.echo(printable(f"{key}  {learnt.status}, proven {learnt.num_proofs} times{reason}"))


@compensations.command()
@click.argument("key", metavar="COMPENSATION")
@click.option("--reason", required=True, help="Why you answer for it.")
@on_folder
def pin(key: str, reason: str, root: Path, state: Path | None, name: str) -> None:
    """Pin COMPENSATION: it is used whatever was seen, and strict connections use nothing else.

    \b
    Example: autoclave act compensations pin notes/add/0123456789abcdef --reason 'in our contract' --root project
    """
    with opened(root, state, name) as session:
        _record(session, key, "pinned", reason)


@compensations.command()
@click.argument("key", metavar="COMPENSATION")
@click.option("--good/--broken", "is_good", required=True, help="Whether it took back what it was to take back.")
@click.option("--reason", default="", help="What you saw.")
@on_folder
def judge(key: str, is_good: bool, reason: str, root: Path, state: Path | None, name: str) -> None:
    """Record whether an undo by COMPENSATION was right, as you saw at the service. A broken one is not used.

    \b
    Example: autoclave act compensations judge notes/add/0123456789abcdef --broken --root project
    """
    with opened(root, state, name) as session:
        _record(session, key, "proven" if is_good else "quarantined", reason or "said by a user")


def _services(session: "Session") -> "RestManager":
    from autoclave.runtime.rest.manager import RestManager

    manager = session.actions.managers.get("request")
    if not isinstance(manager, RestManager):
        raise InputError("act compensations: no service is connected. Fix: autoclave act connect service")
    return manager


def _record(session: "Session", key: str, status: str, reason: str) -> None:
    from autoclave.runtime.rest.compensations import ProofStatus

    manager = _services(session)
    if key not in {*manager.declared_compensations(), *manager.compensations.all()}:
        raise InputError(f"act compensations: {key}: does not exist; `act compensations list` shows them")
    manager.compensations.record(key, ProofStatus(status), reason)
