"""`autoclave act vault`: secrets that neither a model nor generated code sees."""

from pathlib import Path
from typing import Any

import click

from autoclave.cli.act.authorize import authorize, source_of_tokens, standing
from autoclave.cli.act.opened_vault import (
    default_vault,
    in_vault,
    limited,
    limits_in,
    opened_vault,
    source_of,
    trusting,
    value_given,
)
from autoclave.core import HostError, InputError


@click.group(no_args_is_help=True)
def vault() -> None:
    """Store the keys of services, hidden from models and generated code.

    A command that may use a service finds a dummy key of the same form in SERVICE_TOKEN. A proxy replaces it by the
    key in requests to the hosts of that service only.

    \b
    Example: autoclave act vault list
    """


vault.add_command(authorize)


@vault.command()
@click.argument("service")
@limited
@click.option(
    "--place",
    type=click.Choice(("header", "query", "basic")),
    default="header",
    show_default=True,
    help="Place of the key in a request.",
)
@click.option("--name", default="Authorization", show_default=True, help="Name of the header or parameter.")
@click.option("--as-file", is_flag=True, help="Put the dummy key into a file, named by SERVICE_TOKEN_FILE.")
@in_vault
def add(service: str, place: str, name: str, as_file: bool, path: Path | None, key: str, **given: Any) -> None:
    """Add the key of SERVICE, from standard input or a prompt. It goes to the hosts of --host only.

    \b
    Example: printenv GITHUB_KEY | autoclave act vault add github --host api.github.com
    """
    from autoclave.core.json import validated
    from autoclave.runtime.vault import Secret

    if not given["hosts"]:
        raise InputError(f"service {service}: give --host, where its key may go")
    kept = opened_vault(path, key)
    settings = {"service": service, "place": place, "name": name, "is_file": as_file, **limits_in(given)}
    kept.add(validated(Secret, {**settings, "value": value_given()}, f"service {service}"))


@vault.command(name="list")
@in_vault
def list_secrets(path: Path | None, key: str) -> None:
    """List services with the hosts, scopes and expiry of their keys; never the keys.

    \b
    Example: autoclave act vault list
    """
    kept = opened_vault(path, key)
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
        if unrevoked or not kept.about(service)["authorization"]:
            kept.remove(service)
            continue
        try:
            is_void = source_of_tokens(kept, trust).give_up(service)
        except (InputError, HostError) as error:
            raise type(error)(f"{error}. It is kept; to forget it all the same: vault remove --unrevoked") from None
        if not is_void:
            click.echo(f"{service}: forgotten here, but its provider has no way to make it void; do so there", err=True)


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
    if service is None:
        kept.rekey(source_of(path or default_vault(), lock or key))
    elif kept.about(service)["authorization"]:
        source_of_tokens(kept, trust).renew(service)
    else:
        kept.rotate(service, value_given())
