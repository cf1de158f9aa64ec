"""What the examples with services share: how a service is connected, and a client of our own that shows what is there.

The key goes into a vault, and is in no other file. The client shares nothing with the runtime: it sees what others see.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoclave.core import InputError
from autoclave.core.json import validated
from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.opening import open_session
from autoclave.runtime.session import Session
from autoclave.runtime.vault import KeyFile, Secret, Vault


def session_with(folder: Path, url: str, key: Secret, **settings: Any) -> Session:
    """A session whose work, state and vault are in a new folder, with one service under the name of its key.

    `settings` are those of `ServiceConnection`; the service may be on this machine or on a private network.

    Raises:
        InputError: the service cannot be connected so.
    """
    work, state, vault = folder / "work", folder / "state", folder / "vault"
    work.mkdir()
    state.mkdir(mode=0o700)
    Vault(vault, KeyFile(folder / "vault.key")).add(key)
    service = {"base_url": url, "secret": key.service, "allows_private": True, **settings}
    given = {"vault": {"path": f"{vault}"}, "services": {key.service: service}}
    save_connections(state, validated(Connections, given, url))
    return open_session(work, state)


def key_for(name: str, url: str, value: str, **settings: Any) -> Secret:
    """A key that goes to the host of a URL, and nowhere else; `settings` are those of `Secret`.

    Raises:
        InputError: it can be no key, or goes nowhere.
    """
    host = urlsplit(url).netloc.lower()
    given = {"service": name, "value": value, "hosts": [host], "allows_private": True, **settings}
    return validated(Secret, given, url)


def answer_of(method: str, url: str, body: str | None = None, **headers: str) -> str:
    """What a server answers.

    Raises:
        InputError: it does not answer, or refuses.
    """
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        request = urllib.request.Request(url, None if body is None else body.encode(), given, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        said = error.read(300).decode(errors="replace").strip()
        raise InputError(f"{method} {url}: {error.code}: {said or error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{url}: does not answer ({getattr(error, 'reason', error)})") from None
