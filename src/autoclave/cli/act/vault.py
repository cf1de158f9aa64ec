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
    """Store the keys of services, hidden from models and generated code.

    A command that may use a service finds a dummy key of the same form in SERVICE_TOKEN. A proxy replaces it by the
    key in requests to the hosts of that service only.

    \b
    Example: autoclave act vault list
    """


@vault.command()
@click.argument("service")
@click.option(
    "--host", "hosts", multiple=True, required=True, help="Host that may receive the key; may be given several times."
)
@click.option("--method", "methods", multiple=True, help="HTTP method that may use the key.  [default: all]")
@click.option("--path", "paths", multiple=True, help="Pattern of paths that may receive the key.  [default: /**]")
@click.option(
    "--place",
    type=click.Choice(("header", "query", "basic")),
    default="header",
    show_default=True,
    help="Place of the key in a request.",
)
@click.option("--name", default="Authorization", show_default=True, help="Name of the header or parameter.")
@click.option("--as-file", is_flag=True, help="Put the dummy key into a file, named by SERVICE_TOKEN_FILE.")
@click.option("--allow-private", is_flag=True, help="Allow hosts on a private network.")
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
    """Add the key of SERVICE, from standard input or a prompt.

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
    """List services with the hosts, scopes and expiry of their keys; never the keys.

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
@click.option("--unrevoked", is_flag=True, help="Do not revoke tokens at the provider.")
@trusting
@in_vault
def remove(services: tuple[str, ...], unrevoked: bool, trust: Path | None, path: Path | None, key: str) -> None:
    """Remove keys. OAuth 2 tokens are revoked at their provider first, where it can.

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
@click.option("--lock", type=click.Choice(("passphrase", "file")), help="Change what locks the vault.")
@trusting
@in_vault
def rotate(service: str | None, lock: str | None, trust: Path | None, path: Path | None, key: str) -> None:
    """Replace the key of SERVICE, from standard input or a prompt, or the lock of the vault (--lock).

    An OAuth 2 token is renewed at its provider; nothing is read.

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
