"""Operations on files that a model, a script or a person may propose, as data."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from autoclave.config import Config
from autoclave.runtime.interface import BaseOperation

_MODE = Annotated[int, Field(ge=0, le=0o7777, description="Permission bits, as a number.")]
_PATH = Annotated[str, Field(description="Relative to the folder.")]


class Write(BaseOperation):
    """Make a file, or give an existing one other content; owner, mode and extended attributes of that stay."""

    do: Literal["write"]
    path: _PATH
    content: str = ""
    """Text."""
    content_base64: str | None = None
    """Bytes, in place of the text."""
    mode: _MODE | None = None
    """Of the file; null: that of the existing one, or 644."""


class Append(BaseOperation):
    """Add text to the end of a file."""

    do: Literal["append"]
    path: _PATH
    content: str
    """Text."""


class Edit(BaseOperation):
    """Replace text in a file. The text must occur exactly once, unless `replace_all`."""

    do: Literal["edit"]
    path: _PATH
    old_string: str = Field(min_length=1)
    """The text to replace, with enough around it to be unique; taken literally, line ends and indentation included."""
    new_string: str
    """The text in its place."""
    replace_all: bool = False
    """Replace each occurrence."""


class MakeFolder(BaseOperation):
    """Make a folder, and those above it that are not there."""

    do: Literal["make_folder"]
    path: _PATH


class MakeLink(BaseOperation):
    """Make a symbolic link to something in the same scope."""

    do: Literal["make_link"]
    path: _PATH
    target: str
    """A relative path, from the folder of the link."""


class Delete(BaseOperation):
    """Remove a file, a link, or a folder."""

    do: Literal["delete"]
    path: _PATH
    recursive: bool = False
    """Remove a folder with all that is in it."""


class Move(BaseOperation):
    """Give something another name."""

    do: Literal["move"]
    path: _PATH
    to: _PATH
    replace: bool = False
    """Take the place of a file that has the name."""


class SetMode(BaseOperation):
    """Set the permission bits of a file or folder."""

    do: Literal["set_mode"]
    path: _PATH
    mode: _MODE


class _Command(BaseOperation):
    """Settings of everything that runs in a sealed cell over the folder."""

    within: str = ""
    """The only folder that it sees, and its working folder; empty: all."""
    stdin: str = ""
    """Text for its standard input."""
    accepted_codes: tuple[int, ...] = Field(default=(0,), strict=False)
    """Exit codes that are not a failure."""
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds that it may take."""
    secrets: tuple[str, ...] = Field(default=(), strict=False)
    """Services of the vault that it may reach, through the proxy that holds their keys."""
    network: bool = False
    """Whether it has the network of this machine. What it does there happens when it is planned, and is not undone."""


class Run(_Command):
    """Run a command in a sealed cell over the folder. What it changed there is applied when the action is run."""

    do: Literal["run"]
    command: tuple[str, ...] = Field(strict=False, min_length=1)
    """The program and its arguments; `["sh", "-c", "..."]` for a line of shell."""
    undo: tuple[str, ...] = Field(default=(), strict=False)
    """A command that undoes it, which is tested when it is planned. What was replaced is restored in any case."""


class Python(_Command):
    """Run generated Python in a sealed cell over the folder, like a command."""

    do: Literal["python"]
    source: str
    """The program."""
    packages: tuple[str, ...] = Field(default=(), strict=False)
    """Names on the list of allowed packages."""
    undo: str = ""
    """Python that undoes it; as with a command."""


class Read(BaseOperation):
    """Return a part of a text file. A read is recorded; nothing is changed, so there is nothing to undo."""

    do: Literal["read"]
    path: _PATH
    first_line: int = Field(default=1, ge=1)
    """From 1."""
    max_lines: int = Field(default=2000, ge=1, le=20_000)
    """Most lines to return."""


class List(BaseOperation):
    """Return the names in a folder, those below it included, with sizes; never content."""

    do: Literal["list"]
    path: str = ""
    """Empty: the whole folder."""
    depth: int = Field(default=1, ge=1, le=20)
    """1: without what is in folders below."""


class Search(BaseOperation):
    """Return the lines of text files that contain a string, with path and number of the line."""

    do: Literal["search"]
    text: str = Field(min_length=1, max_length=1000)
    """The string, taken literally."""
    path: str = ""
    """A folder or file; empty: the whole folder."""
    names: str = "*"
    """A pattern for the names of the files, such as `*.py`."""


class Observed(BaseOperation):
    """What the tool of another program did. It is recorded by an observer, and cannot be proposed."""

    do: Literal["observed"]
    tool: str
    """Its name; several if they ran at the same time."""
    about: str = ""
    """Its input in a line: a command, or the path of a file."""
    session: str = ""
    """Session of the program that ran it."""
    is_finished: bool = True
    """False: its end was not seen, so changes of others may be included."""


DataOperation = Write | Append | Edit | MakeFolder | MakeLink | Delete | Move | SetMode
Command = Run | Python
ReadOperation = Read | List | Search
_ALL: tuple[type[Config], ...] = (
    *(Write, Append, Edit, MakeFolder, MakeLink, Delete, Move, SetMode),
    *(Run, Python, Read, List, Search, Observed),
)
OPERATIONS: dict[str, type[Config]] = {get_args(each.model_fields["do"].annotation)[0]: each for each in _ALL}


def key_of(path: str) -> str:
    """Return the key of a path in footprints, which is also its resource in the policy."""
    return f"files/{path}" if path else "files"
