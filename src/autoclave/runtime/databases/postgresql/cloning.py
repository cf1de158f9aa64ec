"""Copies of a PostgreSQL database, rows and all, on a server of our own: actions are planned there without a lock.

A copy is as the database was at one time. It has the same schemas, owners and rights, by roles of the same names; other
schemas, rights that come from roles of PostgreSQL's own (`pg_...`), and settings of roles are left out.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Generator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.postgresql.catalogue import quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.postgresql import PostgresThrowaway, Programs, dumped, postgres_throwaway

_RESTORE_S = 600.0
_ROLES = "SELECT rolname FROM pg_catalog.pg_roles WHERE NOT starts_with(rolname, 'pg_')"
_MEMBERS = """
SELECT r.rolname, m.rolname FROM pg_catalog.pg_auth_members a JOIN pg_catalog.pg_roles r ON r.oid = a.roleid
JOIN pg_catalog.pg_roles m ON m.oid = a.member WHERE NOT starts_with(r.rolname, 'pg_')
"""
_SIZE = """
SELECT COALESCE(sum(pg_catalog.pg_table_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'm', 'S')
"""
_RIGHTS = """
SELECT n.nspname, r.rolname, p.kind
FROM pg_catalog.pg_namespace n, pg_catalog.pg_roles r, (VALUES ('USAGE'), ('CREATE')) p (kind)
WHERE n.nspname = ANY (%s) AND r.rolname IN (%s, %s) AND pg_catalog.has_schema_privilege(r.oid, n.oid, p.kind)
"""


@contextlib.contextmanager
def cloned(server: Server, password: str) -> Generator[DatabaseConnection]:
    """The settings by which a copy is reached, which is there while the block runs. `password`: of the database.

    Raises:
        InputError: it is larger than `max_clone_bytes`, or cannot be made elsewhere.
        HostError: something is not installed, or does not answer.
    """
    settings, schemas = server.settings, server.schemas
    with server.transaction() as connection:
        (size,) = connection.execute(_SIZE, (list(schemas),)).fetchone()
        if size > settings.max_clone_bytes:
            raise InputError(
                f'{server.where}: mode "clone": {size} bytes would be copied, more than max_clone_bytes '
                f'({settings.max_clone_bytes}). Fix: mode "images", or have the limit raised'
            )
        roles = {name for (name,) in connection.execute(_ROLES).fetchall()}
        members = connection.execute(_MEMBERS).fetchall()
        (user,) = connection.execute("SELECT session_user::text").fetchone()
        rights = connection.execute(_RIGHTS, (list(schemas), user, settings.role)).fetchall()
    copies, programs = postgres_throwaway(server.connection.info.server_version // 10_000)
    copies.make_roles(roles)
    database = copies.make_database()
    try:
        _fill(server, copies, programs, database, password)
        with contextlib.closing(copies.owner_of(database)) as owner:
            _permit(owner, roles, members, rights)
        place = {"host": f"{copies.folder}", "port": 0, "dbname": database, "user": user, "password_secret": ""}
        yield settings.model_copy(update=place)
    finally:
        copies.drop_database(database)


def _fill(server: Server, copies: PostgresThrowaway, programs: Programs, database: str, password: str) -> None:
    with contextlib.closing(copies.owner_of(database)) as owner:
        owner.execute("DROP SCHEMA public")
    words = [f"{programs.folder / 'pg_restore'}", "--exit-on-error", "--no-password", *copies.options_of(database)]
    with tempfile.NamedTemporaryFile(prefix="autoclave-copy-") as copy:
        how = ("--format=custom", "--compress=0", f"--file={copy.name}")
        dumped(server.where, programs, server.settings, server.schemas, password, *how)
        try:
            done = subprocess.run([*words, copy.name], capture_output=True, timeout=_RESTORE_S, cwd="/")
        except (OSError, subprocess.SubprocessError) as error:
            raise HostError(f"{server.where}: no copy of it could be made ({type(error).__name__})") from None
    if done.returncode:
        raise InputError(
            f'{server.where}: mode "clone": a copy of it cannot be made here (pg_restore exited with '
            f'{done.returncode}; an extension may not be installed). Fix: mode "images"'
        )


def _permit(owner: Any, roles: set[str], members: list[Any], rights: list[Any]) -> None:
    """Let roles be members of others, and use schemas, as they do in the database."""
    for role, member in members:
        if {role, member} <= roles:
            owner.execute(f"GRANT {quoted(role)} TO {quoted(member)}")
    for schema, role, kind in rights:
        owner.execute(f"GRANT {kind} ON SCHEMA {quoted(schema)} TO {quoted(role)}")
    owner.execute("ANALYZE")
