"""Whether a secret can be used as it says: looked at when it comes into a vault, not when a vault is opened. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autoclave.core import InputError
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.injection import is_passed_on
from autoclave.runtime.vault.secret import Secret

_NEVER_IN_PATH = re.compile(r"[%\\#;\x00-\x1f\x7f]|//|/\.{1,2}(?:/|\Z)")


def require_usable(secret: Secret, others: Iterable[Secret]) -> None:
    """Look whether code could use a secret, beside the others of its vault.

    Raises:
        InputError: no request could ever have it, no dummy can be made of it, or another one has its variable.
    """
    where = f"service {secret.service}"
    require_dummy(secret)
    for host in secret.hosts:
        port = host.partition(":")[2]
        if port and not 0 < int(port) < 1 << 16:
            raise InputError(f"{where}: host {host}: the port must be from 1 to 65535")
    for pattern in secret.paths:
        if not pattern.startswith(("/", "**")) or _NEVER_IN_PATH.search(pattern):
            raise InputError(
                f"{where}: path {pattern!r}: no request can match it. Fix: begin with /, and write characters as they "
                "are, without %; those that can be read in several ways are never let through"
            )
    if secret.place != "query" and not is_passed_on(secret.name.encode()):
        raise InputError(f"{where}: header {secret.name}: is not passed on, so no key can be in it")
    for other in others:
        if other.variable == secret.variable:
            raise InputError(f"{where}: {other.service} has the variable {other.variable} already; give another name")


def require_dummy(secret: Secret) -> None:
    """Look whether a value can be told from its dummy, and stand in a line.

    Raises:
        InputError: it cannot.
    """
    if secret.value != secret.value.strip():
        raise InputError(f"service {secret.service}: the key begins or ends with a space")
    dummy_of(secret.value, secret.service, bytes(32))
