"""Settings of a database for actions: its address, its users, its limits."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from autoclave.config import Config


class Mode(StrEnum):
    """The way in which an action on a database can be undone."""

    IMAGES = "images"
    """It is committed at once; rows before and after are kept, and written back where nobody changed them since."""
    TRANSACTION = "transaction"
    """Its transaction stays open, with its locks, until it is committed or rolled back, for `transaction_timeout_s` at
    most. For Python: refused on the command line, since such a transaction ends with the command."""


class DatabaseConnection(Config):
    """One database. Only what its engine understands may be given."""

    engine: Literal["sqlite", "postgresql", "mariadb", "redis"]
    path: str = ""
    """Of the file, where it is one."""
    host: str = ""
    """The server: a name, an address, or the folder of its socket."""
    port: int = Field(default=0, ge=0, lt=65_536)
    """0: the usual one of the engine."""
    dbname: str = ""
    user: str = ""
    """The user that connects. In PostgreSQL: the owner of the tables, so that changes can be recorded and undone."""
    role: str = ""
    """The role that runs what is proposed, with the least rights that do. `user` must be a member of it."""
    password_secret: str = ""
    """The name of a secret in the vault; empty: the server asks for none. A password itself is no setting."""
    schemas: tuple[str, ...] = Field(default=(), strict=False)
    """Those whose tables may be used, the first being meant where none is said; empty: the usual one of the engine."""
    functions: tuple[str, ...] = Field(default=(), strict=False)
    """Functions of the database's own, `schema.name`, that may be called: they change nothing but rows of `schemas`."""
    mode: Mode = Field(default=Mode.IMAGES, strict=False)
    """For actions that say none."""
    max_rows: int = Field(default=10_000, gt=0)
    """Rows that one action may change, in all tables together."""
    max_bytes: int = Field(default=1 << 29, gt=0)
    """Bytes of rows that are kept of one action. Of PostgreSQL (as text) and SQLite so far."""
    statement_timeout_s: float = Field(default=60.0, gt=0)
    """For one statement."""
    lock_timeout_s: float = Field(default=5.0, gt=0)
    """Longest wait for locks of others."""
    transaction_timeout_s: float = Field(default=300.0, gt=0)
    """After so long an open transaction is rolled back."""
    enforces_foreign_keys: bool = True
    """Of SQLite, which does not by itself."""

    @model_validator(mode="after")
    def _names_one_place(self) -> "DatabaseConnection":
        needed, other = ("path", "dbname") if self.engine == "sqlite" else ("dbname", "path")
        if not getattr(self, needed) or getattr(self, other):
            raise ValueError(f"path, dbname: engine {self.engine} needs {needed}, and no {other}")
        if len(set(self.schemas)) < len(self.schemas):
            raise ValueError(f"schemas {self.schemas}: each once")
        return self
