"""Connections of a session to databases and services, and to the vault with their keys.

Kept as `connections.yaml` in the state folder, out of reach of actions. It never contains a key or password.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, JsonValue

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import validated
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.rest.connection import ServiceConnection

FILE = "connections.yaml"
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class VaultPlace(Config):
    """The path of a vault, and how it is unlocked."""

    path: str
    key: Literal["passphrase", "file"] = "file"


class ModelPlace(Config):
    """A model that is asked for unknown compensating requests, at a server with OpenAI's chat API."""

    endpoint: str = Field(pattern=r"^https?://[!-~]+$")
    """Its base URL, such as `http://127.0.0.1:8000/v1`."""
    name: str
    secret: str = ""
    """The name of its key in the vault; empty if it needs none."""


class Connections(Config):
    """Connections by the names that operations and grants use."""

    vault: VaultPlace | None = None
    trust: str = ""
    """A PEM file of certificates that verify services and token providers, in place of the system's."""
    model: ModelPlace | None = None
    databases: Mapping[_Name, DatabaseConnection] = Field(default_factory=dict)
    services: Mapping[_Name, ServiceConnection] = Field(default_factory=dict)
    managers: Mapping[_Name, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Settings of managers of other packages, by the names of their entry points in `autoclave.managers`."""


def load_connections(state: Path) -> Connections:
    """Load the connections of a state. Raises InputError where the file is damaged or others could write it."""
    path = state / FILE
    if not path.exists():
        return Connections()
    about = path.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise InputError(f"{path}: must be owned by this user and writable by no one else. Fix: chown, chmod go-w")
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not valid YAML ({error})") from None
    return validated(Connections, given or {}, f"{path}")


def save_connections(state: Path, connections: Connections) -> None:
    told = connections.model_dump(mode="json", exclude_defaults=True)
    write_atomically(state / FILE, yaml.safe_dump(told, sort_keys=True, allow_unicode=True))
    (state / FILE).chmod(0o600)
