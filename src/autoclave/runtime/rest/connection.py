"""Settings of a service: its address, its catalogue, its limits; and a lease for one session at a time."""

import contextlib
import hashlib
import os
import re
from collections.abc import Generator, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from autoclave.config import Config
from autoclave.core.files import alone_with
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.vault.injection import host_and_port


class ServiceConnection(Config):
    """A service that actions may ask."""

    base_url: str
    """Such as `https://api.example.com`; paths of the catalogue follow."""
    catalogue: str = ""
    """The name of one that comes with this program, or the path of a file. Empty: the service has none, and is asked by
    method and path; nothing of that can be taken back for sure."""
    secret: str = ""
    """The name of its key in the vault; empty: it needs none."""
    scheme: str = "Bearer"
    """The word before the key in the header; empty: the key alone."""
    user: str = ""
    """The user of basic authentication."""
    allows_private: bool = False
    """True if it may be on a private network or on this machine; only there without TLS."""
    proof_days: float = Field(default=90.0, gt=0)
    """Days for which an undo that worked proves its compensating request."""
    timeout_s: float = Field(default=30.0, gt=0)
    """For one request, in seconds."""
    patience_s: float = Field(default=10.0, ge=0)
    """Seconds that a change may take to show."""
    most_wait_s: float = Field(default=60.0, ge=0)
    """The longest that is waited, in seconds and for one request, when the service asks to come again later."""
    most_response_bytes: int = Field(default=16 << 20, gt=0)
    queue_up_to: Guarantee = Field(default=Guarantee.NONE, strict=False)
    """Actions that are queued in the outbox after approval: all with an undo that is no better than this."""
    queue_s: float = Field(default=30.0, ge=0)
    """Seconds that they are queued, in which they can be discarded."""

    @field_validator("base_url")
    @classmethod
    def _is_base(cls, given: str) -> str:
        place = urlsplit(given) if given.isascii() and given.isprintable() and " " not in given else None
        if place is None or place.scheme not in ("http", "https") or place.query or place.fragment:
            raise ValueError(f"{given!r} must be https://HOST, maybe with a port and a path")
        if "@" in place.netloc:
            raise ValueError("must have no user: keys belong into the vault")
        if re.search(r"%|//|\\", place.path) or any(part in (".", "..") for part in place.path.split("/")):
            raise ValueError(f"{given!r} has a path that can be read in several ways")
        default = 443 if place.scheme == "https" else 80
        host, port = host_and_port(place.netloc, default)
        return f"{place.scheme}://{host}{'' if port == default else f':{port}'}{place.path.rstrip('/')}"

    @model_validator(mode="after")
    def _is_safe(self) -> "ServiceConnection":
        if self.base_url.startswith("http:") and not self.allows_private:
            raise ValueError(f"base_url = {self.base_url!r} must be https; http is for private networks only")
        return self

    @property
    def is_tls(self) -> bool:
        return self.base_url.startswith("https:")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return host_and_port(urlsplit(self.base_url).netloc, 443 if self.is_tls else 80)

    @property
    def prefix(self) -> str:
        """The path of the base URL, without a slash at its end."""
        return urlsplit(self.base_url).path


def is_file_name(catalogue: str) -> bool:
    """Return whether a catalogue is named by its file, and does not come with this program."""
    return "." in catalogue or "/" in catalogue


@contextlib.contextmanager
def lease_of_services(base_urls: Iterable[str], wait_s: float = 0.0) -> Generator[None]:
    """Have services, by their base URLs, for the length of the block; no other session of this user acts on them then.

    A lock file for each, in a folder that all sessions of a user share. It ends with the process.

    Raises InputError: another session has had one of them for `wait_s` seconds.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    (folder := state / "autoclave" / "services").mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as held:
        for url in sorted(set(base_urls)):  # in one order: two sessions never wait for each other's
            complaint = f"service {url}: another session works on it; wait for it, or end it"
            held.enter_context(alone_with(folder / hashlib.sha256(url.encode()).hexdigest()[:32], complaint, wait_s))
        yield
