"""Tokens of services that are valid now: renewed before they expire, or when a service refuses one.

What can be lost. Many providers give a new refresh token with each renewal and make the old one void. Before a new
access token is given to anybody, it and the new refresh token are durable in the vault. If this process dies between
the answer and that, nobody has the new refresh token. The next renewal then tries the old one. Providers that keep it
valid for a while give another; the others refuse, and mostly end the whole authorisation, since a refresh token that is
used twice looks stolen to them. That is told, and a person has to authorise again. Nothing goes on silently with a
token that is void.
"""

import ssl
import time
from collections.abc import Callable
from typing import NoReturn

from autoclave.core import InputError
from autoclave.core.json import validated
from autoclave.runtime.oauth.endpoints import Endpoints, Refused, Unreachable, answer_of, described
from autoclave.runtime.vault.secret import Authorization, Secret
from autoclave.runtime.vault.vault import Vault

_VOID = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token", "token_revoked", "token_expired"})
"""Words of providers for a refresh token that will never work again."""


class TokenSource:
    """Gives the keys of the services of `vault`, as they are valid now. May be used by several threads.

    Keys that somebody typed in are given as they are. `verify`: the certificates that providers are verified by, None
    for those of the system. `now`: seconds since 1970.
    """

    def __init__(
        self, vault: Vault, verify: ssl.SSLContext | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._vault, self._verify, self._now = vault, verify, now

    def secret(self, service: str, purpose: str = "a request") -> Secret:
        """The secret of a service, with a token that is valid for a minute at least if that is in our power.

        Raises InputError: there is none; or it cannot be renewed, and a person has to authorise again. HostError: it
        has expired, and the provider cannot be reached.
        """
        found = self._vault.secret(service, purpose)
        if found.authorization is None or not found.authorization.is_expiring(self._now()):
            return found
        return self.refreshed(service, None)

    def renew(self, service: str) -> Secret:
        """Another token, now; see `refreshed`."""
        return self.refreshed(service, self._vault.secret(service, "renewal").value)

    def give_up(self, service: str) -> bool:
        """Have the tokens of a service made void, and forget them; whether the provider has a way to make them void.

        Raises InputError: there are none, or the provider refuses. They are kept. HostError: the provider cannot be
        reached. They are kept.
        """
        with self._vault.alone():
            secret = self._vault.secret(service, "to make it void")
            given = secret.authorization
            is_revocable = given is not None and bool(given.provider.revocation_url)
            if given is not None and is_revocable:
                endpoints = Endpoints(given, self._verify)
                try:
                    if given.refresh_token:
                        endpoints.revoke(given.refresh_token, "refresh_token")
                    endpoints.revoke(secret.value, "access_token")
                except (Refused, Unreachable) as error:
                    self._vault.told(service, "revocation failed")
                    raise described(error, service) from None
                self._vault.told(service, "revoke")
            self._vault.remove(service)
            return is_revocable

    def refreshed(self, service: str, rejected: str | None) -> Secret:
        """Another token than `rejected`, which the service has refused (401); if that is None, one that is not about to
        expire. When somebody else has renewed it meanwhile, that one is given, and the provider is not asked.

        Raises InputError where the key was typed in, or it cannot be renewed, and HostError where the provider cannot
        be reached.
        """
        with self._vault.alone():
            before = self._vault.secret(service, "renewal")
            given = before.authorization
            if given is None:
                raise InputError(f"service {service}: its key was typed in, so only a person can renew it")
            if not (given.is_expiring(self._now()) if rejected is None else before.value == rejected):
                return before
            is_valid = rejected is None and not given.has_expired(self._now())
            if not given.refresh_token:
                if is_valid and not given.ended:
                    return before
                _authorise_again(service, given)
            try:
                told = Endpoints(given, self._verify).tokens("refresh_token", refresh_token=given.refresh_token)
                token, renewed = answer_of(told, given, self._now())
            except Refused as error:
                if error.code in _VOID:
                    ended = given.model_copy(update={"ended": error.code, "refresh_token": ""})
                    about = {"authorization": ended}
                    self._vault.change(
                        service, "authorisation ended", lambda each: each.model_copy(update=about), code=error.code
                    )
                    _authorise_again(service, ended)
                self._vault.told(service, "renewal refused", code=error.code)
                raise described(error, service) from None
            except (InputError, Unreachable) as error:
                if is_valid:
                    return before
                raise described(error, service) from None

            def change(found: Secret) -> Secret:
                if found.authorization != given:
                    raise InputError(f"service {service}: was changed while its token was renewed. Fix: try again")
                changed = {**found.model_dump(), "value": token, "authorization": renewed}
                return validated(Secret, changed, f"service {service}")

            is_rotated = renewed.refresh_token != given.refresh_token
            return self._vault.change(service, "renew", change, is_rotated=is_rotated)


def _authorise_again(service: str, given: Authorization) -> NoReturn:
    why = f"its authorisation has ended ({given.ended})" if given.ended else "the provider gave nothing to renew it by"
    raise InputError(
        f"service {service}: the token can be used no more, and {why}. Fix: autoclave act vault authorize {service}"
    )
