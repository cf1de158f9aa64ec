"""`autoclave act vault`: secrets that neither a model nor generated code sees, and tokens by a person's consent."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.common import say
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
from autoclave.core.install import needing
from autoclave.core.json import validated

if TYPE_CHECKING:
    from autoclave.runtime.oauth import Device, Provider, TokenSource, Wish
    from autoclave.runtime.vault import Vault

_ENDPOINTS = ("authorization_url", "token_url", "device_url", "revocation_url")


@click.command()
@click.argument("service")
@click.option("--issuer", metavar="URL", help="Issuer, whose metadata names the endpoints.")
@click.option("--authorization-url", metavar="URL", help="Where the browser is sent.")
@click.option("--token-url", metavar="URL", help="Where tokens are got.")
@click.option("--device-url", metavar="URL", help="Where a code for another device is got.")
@click.option("--revocation-url", metavar="URL", help="Where tokens are made void.")
@click.option("--client-id", help="Client id of this program at the provider.")
@click.option("--with-client-secret", is_flag=True, help="Read the client's secret from standard input, or ask for it.")
@click.option("--scope", "scopes", multiple=True, help="Scope to request; may be given several times.")
@click.option("--device", is_flag=True, help="Authorise by a code on another device, not in a browser here.")
@click.option("--no-browser", is_flag=True, help="Only show the address; do not open it.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of the redirect.  [default: any free one]")
@limited
@trusting
@in_vault
def authorize(service: str, path: Path | None, key: str, trust: Path | None, **given: Any) -> None:
    """Authorise SERVICE by OAuth 2, in a browser or on another device, and store the token in the vault.

    The provider is named by its issuer, or by its addresses. A service that was authorised before needs no option; what
    --scope names is requested beside the scopes that were granted.

    \b
    Example: autoclave act vault authorize crm --issuer https://login.example.com --client-id ID --host api.example.com
    """
    kept = opened_vault(path, key)
    with needing("act vault authorize", "runtime"):
        from autoclave.runtime.oauth import Authorizing
    verify = _verify(trust)
    wish, authorizing = _wish(kept, service, verify, given), Authorizing(kept, verify)
    if given["device"]:
        granted = authorizing.by_device(wish, _show_device)
    else:
        granted = authorizing.by_browser(wish, lambda url: _show(url, opens=not given["no_browser"]))
    say(f"{service}: granted ({' '.join(granted) or 'no scopes'})")
    if missing := [scope for scope in given["scopes"] if scope not in granted]:
        say(f"{service}: not granted: {' '.join(missing)}", err=True)


def _wish(kept: Vault, service: str, verify: ssl.SSLContext | None, given: Mapping[str, Any]) -> Wish:
    """Return the requested grant, from the options and from what was granted before."""
    from autoclave.runtime.oauth import Wish

    is_kept = service in kept.names()
    before = kept.secret(service, "to authorise again").authorization if is_kept else None
    provider = _provider(before.provider if before else None, verify, given)
    client_id = given["client_id"] or (before.client_id if before else "")
    if not client_id:
        raise InputError(f"service {service}: give --client-id, as the provider has registered this program")
    secret = value_given("Client secret") if given["with_client_secret"] else before.client_secret if before else ""
    about = limits_in(given)
    if "hosts" not in about and not before:
        raise InputError(f"service {service}: give --host, where its token may go")
    return Wish(service, provider, client_id, secret, given["scopes"], about)


def _provider(start: Provider | None, verify: ssl.SSLContext | None, given: Mapping[str, Any]) -> Provider:
    from autoclave.runtime.oauth import Provider, discovered

    changes = {name: given[name] for name in _ENDPOINTS if given[name]}
    if given["port"] is not None:
        changes["redirect_port"] = given["port"]
    if given["with_client_secret"] and (start is None or start.client_authentication == "none"):
        changes["client_authentication"] = "basic"
    provider = validated(Provider, {**(start.model_dump() if start else {}), **changes}, "provider")
    if given["issuer"]:
        provider = discovered(given["issuer"], provider, verify)
    if not provider.token_url:
        raise InputError("give --issuer, or --authorization-url and --token-url: nothing is known of this provider")
    return provider


def _show(url: str, *, opens: bool) -> None:
    say("Open this address, and agree there:")
    say(f"    {url}")
    if opens:
        import webbrowser

        webbrowser.open(url)


def _show_device(device: Device) -> None:
    say(f"Open {device.page} on any device, and type in:")
    say(f"    {device.user_code}")


def standing(authorization: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield descriptions of the granted scopes and their expiry."""
    if authorization is None:
        return
    yield f"oauth {','.join(authorization['scopes']) or '-'}"
    left_s = authorization["expires_at"] - time.time()
    if authorization["ended"]:
        yield f"ended ({authorization['ended']}): authorise again"
    elif not authorization["expires_at"]:
        yield "does not expire"
    else:
        yield f"expires in {left_s / 60:.0f} min" if left_s > 0 else "expired; renewed when it is used"


def source_of_tokens(kept: Vault, trust: Path | None) -> TokenSource:
    """Return what renews and revokes the tokens of a vault."""
    from autoclave.runtime.oauth import TokenSource

    return TokenSource(kept, _verify(trust))


def _verify(trust: Path | None) -> ssl.SSLContext | None:
    from autoclave.runtime.keys import trusting

    return trusting(trust) if trust else None


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
