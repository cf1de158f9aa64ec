"""Tokens of services that are valid now: renewed before they expire, or when a service refuses one.

What can be lost. Many providers give a new refresh token with each renewal and make the old one void. Before the
provider is asked, the vault says durably that a renewal has begun; before a new access token is given to anybody, it
and the new refresh token are durable. If this process dies in between, nobody has the new refresh token. The next
renewal then tries the old one. Providers that keep it valid for a while give another; the others refuse, and mostly end
the whole authorisation, since a refresh token that is used twice looks stolen to them. That is told with its cause, and
a person has to authorise again. Nothing goes on silently with a token that is void.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import NoReturn

from autoclave.core import HostError, InputError
from autoclave.runtime.oauth.endpoints import Answer, Endpoints, Refused, Unreachable, answer_of, described
from autoclave.runtime.vault.authorization import Authorization
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.vault import Vault, secret_from

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

    def secret(self, service: str, purpose: str) -> Secret:
        """The secret of a service, with a token that is valid for a minute at least if that is in our power.

        Raises:
            InputError: there is none; or it cannot be renewed, and a person has to authorise again.
            HostError: it has expired, and the provider cannot be reached.
        """
        found = self._vault.secret(service, purpose)
        if found.authorization is None or not found.authorization.is_expiring(self._now()):
            return found
        return self._renewed(service, lambda secret: _is_expiring(secret, self._now()))

    def key_of(self, service: str, purpose: str = "a request") -> str:
        """The value to send to a service; see `secret`."""
        return self.secret(service, purpose).value

    def refreshed(self, service: str, rejected: str) -> Secret:
        """Another token than `rejected`, which the service has refused (401).

        When somebody else has renewed it meanwhile, that one is given, and the provider is not asked.

        Raises:
            InputError: the key was typed in, or it cannot be renewed.
            HostError: the provider cannot be reached.
        """
        return self._renewed(service, lambda secret: secret.value == rejected, is_rejected=True)

    def renew(self, service: str) -> Secret:
        """Another token, now.

        Raises:
            InputError, HostError: as `refreshed`.
        """
        return self._renewed(service, lambda _: True, is_rejected=True)

    def give_up(self, service: str) -> bool:
        """Have the tokens of a service made void, and forget them; whether the provider has a way to make them void.

        Raises:
            InputError: there are none, or the provider refuses. They are kept.
            HostError: the provider cannot be reached. They are kept.
        """
        with self._vault.alone():
            secret = self._vault.secret(service, "to make it void")
            given = secret.authorization
            is_revocable = given is not None and bool(given.provider.revocation_url)
            if given is not None and is_revocable:
                endpoints = self._endpoints(given)
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

    # --- Renewal ----------------------------------------------------------------------------------------------------

    def _renewed(self, service: str, is_needed: Callable[[Secret], bool], *, is_rejected: bool = False) -> Secret:
        with self._vault.alone():
            before = self._vault.secret(service, "renewal")
            given = before.authorization
            if given is None:
                raise InputError(f"service {service}: its key was typed in, so only a person can renew it")
            if not is_needed(before):
                return before
            if not given.refresh_token:
                if not given.ended and not is_rejected and not given.has_expired(self._now()):
                    return before
                _authorise_again(service, given)
            self._vault.change(service, "renewal begins", self._marked)
            try:
                answer = self._asked(given)
            except Unreachable as error:
                if not error.may_have_arrived:
                    self._vault.change(service, "renewal not begun", lambda secret: _unmarked(secret, given))
                if not is_rejected and not given.has_expired(self._now()):
                    return before
                raise described(error, service) from None
            except Refused as error:
                self._refused(service, given, error)
            return self._stored(service, answer)

    def _asked(self, given: Authorization) -> Answer:
        told = self._endpoints(given).tokens("refresh_token", refresh_token=given.refresh_token)
        try:
            return answer_of(told, given.provider)
        except InputError as error:
            raise Unreachable.at(given.provider.token_url, str(error), may_have_arrived=True) from None

    def _stored(self, service: str, answer: Answer) -> Secret:
        now = self._now()
        is_rotated = bool(answer.refresh_token)

        def change(before: Secret) -> Secret:
            given = _authorization(before)
            renewed = given.model_copy(
                update={
                    "refresh_token": answer.refresh_token or given.refresh_token,
                    "scopes": answer.scopes if answer.scopes is not None else given.scopes,
                    "obtained_at": now,
                    "expires_at": now + answer.lifetime_s if answer.lifetime_s else 0.0,
                    "renewing_since": 0.0,
                }
            )
            told = {**before.model_dump(), "value": answer.access_token, "rotated_at": now, "authorization": renewed}
            return secret_from(told, f"service {service}")

        return self._vault.change(service, "renew", change, is_rotated=is_rotated)

    def _refused(self, service: str, given: Authorization, error: Refused) -> NoReturn:
        if error.code not in _VOID:
            self._vault.change(service, "renewal refused", lambda secret: _unmarked(secret, given), code=error.code)
            raise described(error, service) from None
        ended = error.code
        if given.renewing_since:
            ended = f"{ended}, after a renewal that was interrupted before its answer was stored"

        def change(before: Secret) -> Secret:
            over = {"ended": ended, "refresh_token": "", "renewing_since": 0.0}
            return before.model_copy(update={"authorization": _authorization(before).model_copy(update=over)})

        self._vault.change(service, "authorisation ended", change, code=error.code)
        _authorise_again(service, given.model_copy(update={"ended": ended}))

    def _marked(self, before: Secret) -> Secret:
        given = _authorization(before)
        marked = given.model_copy(update={"renewing_since": given.renewing_since or self._now()})
        return before.model_copy(update={"authorization": marked})

    def _endpoints(self, given: Authorization) -> Endpoints:
        return Endpoints(given.provider, given.client_id, given.client_secret, self._verify)


def _is_expiring(secret: Secret, now: float) -> bool:
    return secret.authorization is not None and secret.authorization.is_expiring(now)


def _authorization(secret: Secret) -> Authorization:
    if secret.authorization is None:
        raise HostError(f"service {secret.service}: was replaced by a key meanwhile. Fix: authorise again")
    return secret.authorization


def _unmarked(secret: Secret, before: Authorization) -> Secret:
    """As it was before this renewal; the mark of an earlier one that was interrupted stays."""
    unmarked = _authorization(secret).model_copy(update={"renewing_since": before.renewing_since})
    return secret.model_copy(update={"authorization": unmarked})


def _authorise_again(service: str, given: Authorization) -> NoReturn:
    why = f"its authorisation has ended ({given.ended})" if given.ended else "the provider gave nothing to renew it by"
    raise InputError(
        f"service {service}: the token can be used no more, and {why}. Fix: autoclave act vault authorize {service}"
    )
