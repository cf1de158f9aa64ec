"""`autoclave act vault authorize`: a token by OAuth 2, got by a person's consent; and what is said of such tokens.

Thin: the ways are in `autoclave.runtime.oauth`. Nothing here has a token in its hands.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.common import say
from autoclave.cli.act.opened_vault import in_vault, opened_vault, trusting, value_given
from autoclave.core import HostError, InputError
from autoclave.core.install import install_command

if TYPE_CHECKING:
    from autoclave.runtime.oauth import Device, Granted, Provider, TokenSource, Wish
    from autoclave.runtime.vault import Vault

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0
_ENDPOINTS: Mapping[str, str] = {
    "authorization_url": "Where the browser is sent.",
    "token_url": "Where tokens are got.",
    "device_url": "Where a code for another device is got.",
    "revocation_url": "Where tokens are made void.",
}


def _with_endpoints(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, told in reversed(list(_ENDPOINTS.items())):
        command = click.option(f"--{name.replace('_', '-')}", metavar="URL", help=told)(command)
    return click.option("--issuer", metavar="URL", help="Issuer, whose metadata names the endpoints.")(command)


def _with_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--allow-private", is_flag=True, help="Allow hosts on a private network.")(command)
    command = click.option(
        "--path", "paths", multiple=True, help="Pattern of paths that may receive the token.  [default: /**]"
    )(command)
    command = click.option(
        "--method", "methods", multiple=True, help="HTTP method that may use the token.  [default: all]"
    )(command)
    return click.option(
        "--host", "hosts", multiple=True, help="Host that may receive the token; may be given several times."
    )(command)


@click.command()
@click.argument("service")
@_with_endpoints
@click.option("--client-id", help="Client id of this program at the provider.")
@click.option("--with-client-secret", is_flag=True, help="Read the client's secret from standard input, or ask for it.")
@click.option("--scope", "scopes", multiple=True, help="Scope to request; may be given several times.")
@click.option("--resource", metavar="URL", help="Resource indicator of the token, where the provider needs one.")
@click.option(
    "--device/--browser", "device", default=None, help="Authorise by a code on another device, or in a browser here."
)
@click.option("--no-browser", is_flag=True, help="Only show the address; do not open it.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of the redirect.  [default: any free one]")
@click.option("--wait", "wait_s", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds to wait.")
@click.option("--again", is_flag=True, help="Authorise again, even if all scopes are granted already.")
@_with_limits
@trusting
@in_vault
def authorize(service: str, path: Path | None, key: str, trust: Path | None, **given: Any) -> None:
    """Authorise SERVICE by OAuth 2, in a browser or on another device, and store the token in the vault.

    gmail, slack, spotify, dropbox, github and discord need only --client-id. A service that was authorised before
    needs no option; only missing scopes are requested.

    \b
    Example: autoclave act vault authorize github --client-id 0123456789abcdef0123
    """
    kept = opened_vault(path, key)
    verify = _verify(trust)
    wish, is_device = _wish(kept, service, verify, given)
    from autoclave.runtime.oauth import Authorizing

    authorizing = Authorizing(kept, verify)
    if is_device:
        granted = authorizing.by_device(wish, _show_device)
    else:
        granted = authorizing.by_browser(wish, lambda url: _show(url, opens=not given["no_browser"]), given["wait_s"])
    _say(service, granted)


def _wish(kept: Vault, service: str, verify: ssl.SSLContext | None, given: Mapping[str, Any]) -> tuple[Wish, bool]:
    """Return the requested grant, and whether by another device: from the options, from before, or from what is
    shipped.
    """
    try:
        from autoclave.runtime.oauth import Wish, shipped, wish_again
    except ImportError as error:
        raise HostError(f"authorize needs a library ({error.name}). Fix: {install_command('runtime')}") from None
    before, known = wish_again(kept, service), shipped(service)
    start = before.provider if before else known.provider if known else None
    provider = _provider(start, known.client_secret_by if known else "basic", verify, given)
    client_id = given["client_id"] or (before.client_id if before else "")
    if not client_id:
        notes = f" {known.notes}" if known else ""
        raise InputError(f"service {service}: give --client-id, as the provider has registered this program.{notes}")
    secret = before.client_secret if before else ""
    is_device = given["device"]
    if is_device is None:
        is_device = bool(known and known.device and not before)
    if given["with_client_secret"]:
        secret = value_given("Client secret")
    elif known and known.needs_client_secret and not secret:
        raise InputError(f"service {service}: give --with-client-secret. {known.notes}")
    about: dict[str, Any] = {name: given[name] for name in ("hosts", "methods", "paths") if given[name]}
    if known and not before:
        about = {"hosts": known.hosts, **({"paths": known.paths} if known.paths else {}), **about}
    if "hosts" not in about and not before:
        raise InputError(f"service {service}: give --host, where its token may go")
    if given["allow_private"]:
        about["allows_private"] = True
    return Wish(service, provider, client_id, secret, given["scopes"], about, given["again"]), is_device


def _provider(
    start: Provider | None, secret_by: str, verify: ssl.SSLContext | None, given: Mapping[str, Any]
) -> Provider:
    from pydantic import ValidationError

    from autoclave.core.json import first_error, rule_of
    from autoclave.runtime.oauth import Provider, discovered

    changes = {name: given[name] for name in (*_ENDPOINTS, "resource") if given[name]}
    if given["port"] is not None:
        changes["redirect_port"] = given["port"]
    if given["with_client_secret"] and (start is None or start.client_authentication == "none"):
        changes["client_authentication"] = secret_by
    try:
        provider = Provider.model_validate({**(start.model_dump() if start else {}), **changes})
    except ValidationError as error:
        first = first_error(error)
        raise InputError(f"{'.'.join(map(str, first['loc']))}: {rule_of(first['msg'])}") from None
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


def _say(service: str, granted: Granted) -> None:
    if not granted.asked:
        say(f"{service}: all of it was granted before ({' '.join(granted.scopes) or 'no scopes'})")
        return
    say(f"{service}: granted ({' '.join(granted.scopes) or 'no scopes'})")
    if granted.not_granted:
        say(f"{service}: not granted: {' '.join(granted.not_granted)}", err=True)


# --- What the vault says of tokens -----------------------------------------------------------------------------------


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
        yield f"expires in {_duration(left_s)}" if left_s > 0 else "expired; renewed when it is used"


def _duration(seconds: float) -> str:
    for unit_s, name in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def given_up(kept: Vault, service: str, trust: Path | None) -> None:
    """Revoke a token and remove it, or print where a person can revoke it."""
    page = kept.about(service)["authorization"]["provider"]["settings_page"]
    try:
        is_void = _source(kept, trust).give_up(service)
    except (InputError, HostError) as error:
        raise type(error)(f"{error}. It is kept; to forget it all the same: vault remove --unrevoked") from None
    if not is_void:
        where = f" ({page})" if page else ""
        say(f"{service}: forgotten here, but its provider has no way to make it void; do so there{where}", err=True)


def renewed(kept: Vault, service: str, trust: Path | None) -> None:
    """Renew a token now."""
    _source(kept, trust).renew(service)


def _source(kept: Vault, trust: Path | None) -> TokenSource:
    from autoclave.runtime.oauth import TokenSource

    return TokenSource(kept, _verify(trust))


def _verify(trust: Path | None) -> ssl.SSLContext | None:
    from autoclave.runtime.keys import trusting

    return trusting(trust) if trust else None
