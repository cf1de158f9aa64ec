"""The secrets of one way out, as they are valid now. Tokens are renewed meanwhile; the cell keeps its dummies."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.traces import Replacer, found_in

if TYPE_CHECKING:
    from autoclave.runtime.keys import Keys


class LiveSecrets:
    """`secrets`, what the cell has in place of their values (`dummies`, by service), and what renews them (`keys`)."""

    def __init__(self, secrets: Sequence[Secret], dummies: Mapping[str, str], keys: Keys) -> None:
        self.dummies = dict(dummies)
        self._secrets, self._keys = list(secrets), keys
        self._replacements = {secret.value: dummies[secret.service] for secret in secrets}
        self._after_refusal: set[str] = set()
        self._lock = threading.Lock()

    def all(self) -> Sequence[Secret]:
        """All of them, as they are valid now."""
        return self._secrets

    def without_values(self, content: bytes) -> bytes:
        """Bytes with dummies in place of all values that are valid, or were."""
        return Replacer(self._replacements).whole(content)

    def are_in(self, content: bytes) -> bool:
        """Whether bytes have a value that is valid, or was."""
        return bool(found_in(content, {value: value for value in self._replacements}))

    def valid(self, secret: Secret) -> Secret:
        """The secret, renewed if it is about to expire.

        Raises:
            InputError, HostError: it has expired, and cannot be renewed.
        """
        if secret.authorization is None or not secret.authorization.is_expiring(time.time()):
            return secret
        return self._taken(secret, self._keys.secret(secret.service))

    def another(self, refused: Secret) -> Secret | None:
        """One with another token than that which a service refused; None if it is not to be renewed.

        A token that was got so is not renewed when it is refused as well: otherwise code could have its provider asked
        as often as it likes.

        Raises:
            InputError, HostError: it cannot be renewed.
        """
        if refused.authorization is None or refused.value in self._after_refusal:
            return None
        renewed = self._taken(refused, self._keys.refreshed(refused.service, refused.value))
        self._after_refusal.add(renewed.value)
        return renewed

    def _taken(self, before: Secret, found: Secret) -> Secret:
        """The token that was found, where it may go as it was decided."""
        renewed = before.model_copy(update={"value": found.value, "authorization": found.authorization})
        with self._lock:
            self._replacements = {**self._replacements, renewed.value: self.dummies[renewed.service]}
            self._secrets = [renewed if each.service == renewed.service else each for each in self._secrets]
        return renewed
