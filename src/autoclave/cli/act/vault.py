"""`autoclave act vault`: secrets that neither a model nor generated code sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.authorize import given_up, renewed, standing
from autoclave.cli.act.opened_vault import default_vault, in_vault, opened_vault, source_of, trusting, value_given
from autoclave.core import InputError

if TYPE_CHECKING:
    pass


@click.group(no_args_is_help=True)
def vault() -> None:
    """Keep the keys of services where neither a model nor generated code sees them.

    Commands that may use a service find a dummy of the same form in SERVICE_TOKEN; a proxy puts the key in, on the way
    to the hosts of that service alone.

    \b
    Example: autoclave act vault list
    """


@vault.command()
@click.argument("service")
@click.option("--host", "hosts", multiple=True, required=True, help="Where it may go; may be given again.")
@click.option("--method", "methods", multiple=True, help="By which methods.  [default: all]")
@click.option("--path", "paths", multiple=True, help="To which paths, as patterns.  [default: /**]")
@click.option(
    "--place",
    type=click.Choice(("header", "query", "basic")),
    default="header",
    show_default=True,
    help="Where services of this kind expect a key.",
)
@click.option("--name", default="Authorization", show_default=True, help="Of the header or parameter.")
@click.option("--as-file", is_flag=True, help="Code finds the dummy in a file, named by SERVICE_TOKEN_FILE.")
@click.option("--allow-private", is_flag=True, help="The hosts may be on a private network.")
@in_vault
def add(
    service: str,
    hosts: tuple[str, ...],
    methods: tuple[str, ...],
    paths: tuple[str, ...],
    place: str,
    name: str,
    as_file: bool,
    allow_private: bool,
    path: Path | None,
    key: str,
) -> None:
    """Add the key of SERVICE, read from standard input or asked for.

    \b
    Example: printenv GITHUB_KEY | autoclave act vault add github --host api.github.com
    """
    from autoclave.runtime.vault.vault import secret_from

    given: dict[str, Any] = {
        "service": service,
        "hosts": hosts,
        "place": place,
        "name": name,
        "is_file": as_file,
        "allows_private": allow_private,
        **({"methods": methods} if methods else {}),
        **({"paths": paths} if paths else {}),
    }
    kept = opened_vault(path, key)
    kept.add(secret_from({**given, "value": value_given()}, f"service {service}"))


@vault.command(name="list")
@in_vault
def list_secrets(path: Path | None, key: str) -> None:
    """Show the services that have a key, where it may go, what was granted and until when; never the key.

    \b
    Example: autoclave act vault list
    """
    kept = opened_vault(path, key)
    if not (path or default_vault()).exists():
        click.echo(f"vault {path or default_vault()}: there is none yet; `act vault add` makes one", err=True)
    for name in kept.names():
        about = kept.about(name)
        where = f"{about['place']} {about['name']}" if about["place"] != "basic" else "password"
        words = [name, " ".join(about["hosts"]), ",".join(about["methods"]), where, *standing(about["authorization"])]
        click.echo("  ".join(words))


@vault.command()
@click.argument("services", nargs=-1, required=True)
@click.option("--unrevoked", is_flag=True, help="Do not have tokens made void at the provider.")
@trusting
@in_vault
def remove(services: tuple[str, ...], unrevoked: bool, trust: Path | None, path: Path | None, key: str) -> None:
    """Forget keys. Tokens got by OAuth 2 are made void at their provider first, where it has a way for that.

    \b
    Example: autoclave act vault remove github
    """
    kept = opened_vault(path, key)
    for service in services:
        if unrevoked or not kept.is_renewable(service):
            kept.remove(service)
        else:
            given_up(kept, service, trust)


@vault.command()
@click.argument("service", required=False)
@click.option("--lock", type=click.Choice(("passphrase", "file", "keyring")), help="Lock the vault itself anew.")
@trusting
@in_vault
def rotate(service: str | None, lock: str | None, trust: Path | None, path: Path | None, key: str) -> None:
    """Give SERVICE another key, read from standard input or asked for; or lock the vault with another one (--lock).

    A token got by OAuth 2 is renewed at its provider, and nothing is read.

    \b
    Example: printenv NEW_KEY | autoclave act vault rotate github
    """
    if (service is None) == (lock is None):
        raise InputError("act vault rotate: give a service, or --lock")
    kept = opened_vault(path, key)
    if service is not None and kept.is_renewable(service):
        renewed(kept, service, trust)
        return
    if service is not None:
        kept.rotate(service, value_given())
        return
    place = path or default_vault()
    kept.rekey(source_of(place, lock or key, is_fresh=True))
