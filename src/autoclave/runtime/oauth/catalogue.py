"""Settings of providers that are shipped. They follow the published documentation and have not been tried live."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from autoclave.config import Config
from autoclave.core.json import validated
from autoclave.runtime.vault.authorization import Provider


class Shipped(Config):
    """A provider, and where its tokens may go."""

    documentation: tuple[str, ...] = Field(strict=False)
    """Where its settings were read."""
    notes: str
    """What a person has to know who registers a client with it."""
    hosts: tuple[str, ...] = Field(strict=False)
    paths: tuple[str, ...] = Field(default=(), strict=False)
    device: bool = False
    """Whether the device flow is the way to take when nothing is said."""
    needs_client_secret: bool = False
    client_secret_by: Literal["basic", "post"] = "basic"
    """How a client that has a secret says it."""
    provider: Provider


def shipped_names() -> list[str]:
    """The services whose providers are known."""
    return sorted(each.name.removesuffix(".yaml") for each in _folder().iterdir() if each.name.endswith(".yaml"))


def shipped(service: str) -> Shipped | None:
    """What is known of the provider of a service; None if nothing.

    Raises:
        InputError: what is shipped is damaged.
    """
    if service not in shipped_names():
        return None
    import yaml

    given: Any = yaml.safe_load(_folder().joinpath(f"{service}.yaml").read_text(encoding="utf-8"))
    return validated(Shipped, given, f"{service}.yaml")


def _folder() -> Any:
    return files("autoclave.runtime.oauth") / "providers"
