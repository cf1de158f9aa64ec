"""Operations on files, as data: what a model, a script or a person may propose. Touches nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from autoclave.config import Config

_MODE = Annotated[int, Field(ge=0, le=0o7777)]


class Write(Config):
    """Make a file, or give an existing one other content; owner, mode and extended attributes of that stay."""

    do: Literal["write"]
    path: str
    content: str = ""
    """Text."""
    content_base64: str | None = None
    """Bytes, in place of the text."""
    mode: _MODE | None = None
    """Of the file; null: that of the existing one, or 644."""


class Append(Config):
    """Add text to the end of a file."""

    do: Literal["append"]
    path: str
    content: str


class MakeFolder(Config):
    """Make a folder, and those above it that are not there."""

    do: Literal["make_folder"]
    path: str


class MakeLink(Config):
    """Make a symbolic link to something in the same scope."""

    do: Literal["make_link"]
    path: str
    target: str


class Delete(Config):
    """Remove a file, a link, or a folder; `recursive`: with all that is in it."""

    do: Literal["delete"]
    path: str
    recursive: bool = False


class Move(Config):
    """Give something another name; `replace`: in place of a file that has it."""

    do: Literal["move"]
    path: str
    to: str
    replace: bool = False


class SetMode(Config):
    """Set the permission bits of a file or folder."""

    do: Literal["set_mode"]
    path: str
    mode: _MODE


class Run(Config):
    """Run a command in a sealed cell over the folder. What it changed there is applied when the action is run."""

    do: Literal["run"]
    command: tuple[str, ...] = Field(strict=False, min_length=1)
    """The program and its arguments; `["sh", "-c", "..."]` for a line of shell."""
    within: str = ""
    """The only folder that it sees, and its working folder; empty: all."""
    stdin: str = ""
    accepted_codes: tuple[int, ...] = Field(default=(0,), strict=False)
    """Exit codes that are no failure."""
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    secrets: tuple[str, ...] = Field(default=(), strict=False)
    """Services of the vault that it may reach, through the proxy that holds their keys."""
    undo: tuple[str, ...] = Field(default=(), strict=False)
    """A command that takes it back; it is tested first, and nothing else is kept. Empty: what it replaced is kept."""
    undo_compared: Literal["content", "names"] = "content"
    """What has to be as it was after both."""

    @model_validator(mode="after")
    def _can_be_tested(self) -> Run:
        _require_no_secrets(self.undo, self.secrets)
        return self


class Python(Config):
    """Run generated Python in a sealed cell over the folder, like a command."""

    do: Literal["python"]
    source: str
    packages: tuple[str, ...] = Field(default=(), strict=False)
    """Names on the list of allowed packages."""
    within: str = ""
    stdin: str = ""
    accepted_codes: tuple[int, ...] = Field(default=(0,), strict=False)
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    secrets: tuple[str, ...] = Field(default=(), strict=False)
    undo: str = ""
    """Python that takes it back; as with a command."""
    undo_compared: Literal["content", "names"] = "content"

    @model_validator(mode="after")
    def _can_be_tested(self) -> Python:
        _require_no_secrets(self.undo, self.secrets)
        return self


def _require_no_secrets(undo: object, secrets: tuple[str, ...]) -> None:
    if undo and secrets:
        raise ValueError(
            "undo: cannot be tested for a program with secrets; leave it out, and what it replaces is kept"
        )


DataOperation = Write | Append | MakeFolder | MakeLink | Delete | Move | SetMode
Command = Run | Python
FileOperation = DataOperation | Command
OPERATIONS: dict[str, type[Config]] = {
    "write": Write,
    "append": Append,
    "make_folder": MakeFolder,
    "make_link": MakeLink,
    "delete": Delete,
    "move": Move,
    "set_mode": SetMode,
    "run": Run,
    "python": Python,
}
