"""`autoclave act pairs`: operations of services and their inverses, and what a person says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autoclave.cli.act.common import on_folder, opened, printable
from autoclave.core import InputError

if TYPE_CHECKING:
    from autoclave.runtime.rest.manager import RestManager
    from autoclave.runtime.session import Session


@click.group(no_args_is_help=True)
def pairs() -> None:
    """Look at what takes operations of services back, and say what you know of it.

    What is known comes from what was seen: an inverse is proven when the service showed afterwards what it had shown
    before, and is quarantined when it once did not.

    \b
    Example: autoclave act pairs list --root project
    """


@pairs.command(name="list")
@on_folder
def list_pairs(root: Path, state: Path | None, name: str) -> None:
    """Show each pair: its name, operation and inverse, how good that is, and what is known of it.

    \b
    Example: autoclave act pairs list --root project
    """
    with opened(root, state, name) as session:
        manager = _services(session)
        known = manager.inverses()
        for pair, (_, operation, inverse) in known.items():
            reason = manager.pairs.learnt(pair, inverse.undo.status).reason
            click.echo(printable(f"{pair}  {operation} -> {inverse.told}{f': {reason}' if reason else ''}"))
        for pair, learnt in manager.pairs.all().items():
            if pair not in known:
                reason = f": {learnt.reason}" if learnt.reason else ""
                click.echo(printable(f"{pair}  {learnt.status}, proven {learnt.num_proofs} times{reason}"))


@pairs.command()
@click.argument("pair")
@click.option("--reason", required=True, help="Why you answer for it.")
@on_folder
def pin(pair: str, reason: str, root: Path, state: Path | None, name: str) -> None:
    """Answer for PAIR: it is used whatever was seen, and is all that strict connections use.

    \b
    Example: autoclave act pairs pin notes/create_note/0123456789abcdef --reason 'in our contract' --root project
    """
    with opened(root, state, name) as session:
        _known(_services(session), pair).pairs.pin(pair, reason)


@pairs.command()
@click.argument("pair")
@click.option("--good/--broken", "is_good", required=True, help="Whether it took back what it was to take back.")
@click.option("--reason", default="", help="What you saw.")
@on_folder
def judge(pair: str, is_good: bool, reason: str, root: Path, state: Path | None, name: str) -> None:
    """Say of PAIR, after having looked at the service, whether an undo by it was one. One that is broken is not used.

    \b
    Example: autoclave act pairs judge notes/create_note/0123456789abcdef --broken --root project
    """
    with opened(root, state, name) as session:
        _known(_services(session), pair).pairs.judge(pair, reason, is_good=is_good)


def _services(session: Session) -> RestManager:
    from autoclave.runtime.rest.manager import RestManager

    manager = session.actions.managers.get("request")
    if not isinstance(manager, RestManager):
        raise InputError("act pairs: no service is connected. Fix: autoclave act connect service")
    return manager


def _known(manager: RestManager, pair: str) -> RestManager:
    known = {*manager.inverses(), *manager.pairs.all()}
    if pair not in known:
        raise InputError(f"act pairs: {pair}: there is no such pair; `act pairs list` shows them")
    return manager
