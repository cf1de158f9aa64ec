"""The operation on services, as data: what a model, a script or a person may propose. Touches nothing."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from autoclave.config import Config


class Ask(Config):
    """Ask a service: one of its registered operations by name, or, where that is permitted, by method and path."""

    do: Literal["request"]
    service: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    operation: str = ""
    """Of the catalogue of the service."""
    arguments: dict[str, Any] = {}
    """Its parameters by name, and `body`."""
    method: str = Field(default="", pattern=r"^[A-Z]*$")
    path: str = ""
    """As the service sees it, with the query."""
    body: Any = None
    """JSON, a text, or bytes as `{"base64": ...}`."""
    content_type: str = "application/json"

    @model_validator(mode="after")
    def _is_one_kind(self) -> Ask:
        if bool(self.operation) == bool(self.method or self.path) or bool(self.method) != bool(self.path):
            raise ValueError("give either operation (and arguments), or method and path (and body)")
        if self.operation and self.body is not None:
            raise ValueError("the body of an operation is the argument `body`")
        return self


OPERATIONS: dict[str, type[Config]] = {"request": Ask}
