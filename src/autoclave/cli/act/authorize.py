"""`autoclave act vault authorize`: a token by OAuth 2, got by a person's consent; and what is said of such tokens.

Thin: the ways are in `autoclave.runtime.oauth`. Nothing here has a token in its hands.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.common import say
from autoclave.cli.act.opened_vault import in_vault, limited, limits_in, opened_vault, trusting, value_given
from autoclave.core import HostError, InputError
from autoclave.core.install import install_command

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
    try:
        from autoclave.runtime.oauth import Authorizing
    except ImportError as error:
        raise HostError(f"authorize needs a library ({error.name}). Fix: {install_command('runtime')}") from None
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
    from autoclave.core.json import validated
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
