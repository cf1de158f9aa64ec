"""The secrets of one way out, as they are valid now. Tokens are renewed meanwhile; the cell keeps its dummies.

A token that was renewed because a service refused it, and is refused as well, is not renewed once more: otherwise code
could have its provider asked as often as it likes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.traces import Replacer, found_in


class Tokens(Protocol):
    """What renews tokens by OAuth 2: `oauth.TokenSource`."""

    def secret(self, service: str, purpose: str) -> Secret:
        """The secret of a service, with a token that is valid now.

        Raises:
            InputError, HostError: there is none, and there cannot be one now.
        """
        ...

    def refreshed(self, service: str, rejected: str) -> Secret:
        """One with another token than that which was refused.

        Raises:
            InputError, HostError: as `secret`.
        """
        ...


class LiveSecrets:
    """`secrets`, what the cell has in place of their values (`dummies`, by service), and what renews `tokens`."""

    def __init__(self, secrets: Sequence[Secret], dummies: Mapping[str, str], tokens: Tokens | None = None) -> None:
        self.dummies = dict(dummies)
        self._secrets, self._tokens = list(secrets), tokens
        self._replacements = {secret.value: dummies[secret.service] for secret in secrets}
        self._in_question: dict[str, str] = {}
        self._lock = threading.Lock()

    def all(self) -> Sequence[Secret]:
        """All of them, as they are valid now."""
        return self._secrets

    def replacer(self) -> Replacer:
        """Puts dummies in place of all values that are valid, or were."""
        return Replacer(self._replacements)

    def are_in(self, content: bytes) -> bool:
        """Whether bytes have a value that is valid, or was."""
        return bool(found_in(content, {value: value for value in self._replacements}))

    def valid(self, secret: Secret) -> Secret:
        """The secret, renewed if it is about to expire.

        Raises:
            InputError, HostError: it has expired, and cannot be renewed.
        """
        if self._tokens is None or secret.authorization is None or not secret.authorization.is_expiring(time.time()):
            return secret
        return self._taken(secret, self._tokens.secret(secret.service, "a request"))

    def another(self, refused: Secret) -> Secret | None:
        """One with another token than that which a service refused; None if it is not to be renewed.

        Raises:
            InputError, HostError: it cannot be renewed.
        """
        if self._tokens is None or refused.authorization is None:
            return None
        if self._in_question.get(refused.service) == refused.value:
            return None
        renewed = self._taken(refused, self._tokens.refreshed(refused.service, refused.value))
        self._in_question[refused.service] = renewed.value
        return renewed

    def accepted(self, secret: Secret) -> None:
        """A service has not refused it."""
        with self._lock:
            if self._in_question.get(secret.service) == secret.value:
                del self._in_question[secret.service]

    def _taken(self, before: Secret, found: Secret) -> Secret:
        """The token that was found, where it may go as it was decided."""
        renewed = before.model_copy(update={"value": found.value, "authorization": found.authorization})
        with self._lock:
            self._replacements = {**self._replacements, renewed.value: self.dummies[renewed.service]}
            self._secrets = [renewed if each.service == renewed.service else each for each in self._secrets]
        return renewed
