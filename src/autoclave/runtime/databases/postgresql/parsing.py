"""The subjects of PostgreSQL statements, and which are refused, by PostgreSQL's own grammar.

This routes, counts and explains. What keeps statements within bounds is the role that runs them.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pglast
from pglast.ast import Node
from pglast.parser import ParseError
from pglast.stream import RawStream

from autoclave.core import InputError
from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.operations import Sql, named_rows
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, catalogue_of
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.databases.tables import Name, place_of

_ALLOWED = (
    'INSERT, UPDATE, DELETE and MERGE are let through, and in mode "transaction" TRUNCATE and definitions of tables, '
    "indexes, views, sequences and enumerations"
)
_VERBS = {"InsertStmt": "create", "UpdateStmt": "modify", "DeleteStmt": "delete"}
_DEFINING = {
    "AlterTableStmt", "DropStmt", "RenameStmt", "CreateEnumStmt", "AlterEnumStmt", "CreateSeqStmt", "AlterSeqStmt",
    "RefreshMatViewStmt", "ViewStmt", "IndexStmt", "CreateStmt", "CreateTableAsStmt",
}  # fmt: skip
_PARTS = {"COLUMN", "TABCONSTRAINT"}
_KINDS = {"TABLE", "VIEW", "MATVIEW", "INDEX", "SEQUENCE", "TYPE", *_PARTS}
_CODE = ("Trig", "Rule", "RowSecurity")
"""In the names of parts of ALTER TABLE that switch triggers, rules or policies on or off."""
_MOMENTS = {"now", "today", "tomorrow", "yesterday"}
_STACK = 1 << 30
"""Bytes that are reserved, and taken only where a text is so deep."""


@dataclass(slots=True)
class Statement:
    """One statement.

    Attributes:
        kind: `rows`, `truncate`, `define`.
        writes: tables and verbs.
        reads: tables that it looks at besides.
        defines: what it creates, alters or drops.
        query: what fills what it defines.
        functions: names of functions that a definition calls.
        is_deterministic: whether it gives the same for the same rows, as far as its words tell.
    """

    kind: str
    writes: dict[Name, set[str]] = field(default_factory=dict[Name, set[str]])
    reads: set[Name] = field(default_factory=set[Name])
    defines: list[Name] = field(default_factory=list[Name])
    query: str = ""
    functions: set[str] = field(default_factory=set[str])
    withs: set[str] = field(default_factory=set[str])
    is_deterministic: bool = True


def parsed(text: str, number: int) -> Statement:
    """Return what a statement is about; raise InputError if it is none, is several, or is refused."""
    where = f"statement {number}"
    trees = _trees(text, where)
    if len(trees) != 1:
        raise InputError(f"{where}: holds {len(trees)} statements; give each as a text of its own")
    tree: Any = trees[0].stmt
    name = type(tree).__name__
    relations = [node for node in _nodes(tree) if type(node).__name__ == "RangeVar"]
    if any(each.relpersistence == "t" or each.catalogname for each in relations):
        raise InputError(f"{where}: is refused: temporary tables, and tables of another database")
    if name in (*_VERBS, "MergeStmt", "SelectStmt"):
        found = Statement("rows")
    elif name == "TruncateStmt":
        found = Statement("truncate", {_name(each): {"delete"} for each in tree.relations})
    elif name in _DEFINING:
        found = _definition(tree, name, where)
    else:
        raise InputError(f"{where}: is refused: {_ALLOWED}, and this is another kind of statement ({name})")
    _look_into(tree, found)
    names = [word for schema, word in (*found.writes, *found.reads, *found.defines) if not schema] + [*found.withs]
    if own := [word for word in names if word.startswith("pg_")]:  # the server looks there first
        raise InputError(f"{where}: {own[0]}: names in pg_ are those of PostgreSQL's own catalogue; take another")
    if found.kind == "rows" and not found.writes:
        raise InputError(f"{where}: changes nothing that can be taken back, so it is no action")
    return found


def _trees(text: str, where: str) -> Any:
    if "\0" in text:
        raise InputError(f"{where}: cannot be read as SQL: it has a NUL in it")
    try:
        return _thread_with_deep_stack().submit(pglast.parse_sql, text).result()
    except ParseError as error:
        raise InputError(f"{where}: {error.args[0]}") from None
    except (ValueError, RecursionError, RuntimeError):  # among them: no thread with so much room
        raise InputError(f"{where}: cannot be read as SQL") from None


@cache
def _thread_with_deep_stack() -> ThreadPoolExecutor:
    """The one thread that parses.

    The parser descends as deep as a text is nested, unchecked. And each thread that calls it uses up a key of
    thread-local storage for good, of which a process has 1,024.
    """
    before = threading.stack_size(_STACK)
    try:
        parsing = ThreadPoolExecutor(max_workers=1)
        parsing.submit(int).result()
    finally:
        threading.stack_size(before)
    return parsing


os.register_at_fork(after_in_child=_thread_with_deep_stack.cache_clear)


def _look_into(tree: Any, found: Statement) -> None:
    """Gather tables and the clock from all parts of a statement."""
    targets: set[int] = set()
    for node in _nodes(tree):
        kind = type(node).__name__
        if kind in _VERBS:
            targets.add(id(node.relation))
            verbs = found.writes.setdefault(_name(node.relation), set())
            verbs.add(_VERBS[kind])
            if kind == "InsertStmt" and node.onConflictClause:
                verbs |= {"modify"} if node.onConflictClause.action.name.endswith("UPDATE") else set()
        elif kind == "MergeStmt":
            targets.add(id(node.relation))
            verbs = {_VERBS.get(f"{each.commandType.name[4:].title()}Stmt", "") for each in node.mergeWhenClauses}
            found.writes.setdefault(_name(node.relation), set()).update(verbs - {""})
        elif kind == "CommonTableExpr":
            found.withs.add(node.ctename)
        elif kind == "FuncCall" and found.kind == "define":
            found.functions.add(node.funcname[-1].sval)
        found.is_deterministic &= not _is_nondeterministic(node)
    made = set(found.defines)
    for node in _nodes(tree):
        if type(node).__name__ == "RangeVar" and id(node) not in targets and found.kind != "truncate":
            name = _name(node)
            if name not in made and not (name[0] == "" and name[1] in found.withs):
                found.reads.add(name)


def _is_nondeterministic(node: Any) -> bool:
    """Return whether a part of a statement may give another value each time. Functions are looked up in the server."""
    match type(node).__name__:
        case "SQLValueFunction" | "SetToDefault":
            return True
        case "InsertStmt" | "MergeWhenClause":
            return node.override.name == "OVERRIDING_USER_VALUE"
        case "A_Const":
            return getattr(node.val, "sval", "").strip().lower() in _MOMENTS
        case _:
            return False


def _definition(tree: Any, name: str, where: str) -> Statement:
    """Return what a definition is about; raise InputError if that is more than it names, or of another kind."""
    if any(getattr(getattr(node, "behavior", None), "name", "") == "DROP_CASCADE" for node in _nodes(tree)):
        raise InputError(f"{where}: is refused: CASCADE drops what the statement does not name; name it")
    parts = [each.subtype.name for each in tree.cmds] if name == "AlterTableStmt" else []
    if _kinds(tree) - _KINDS or any(word in each for word in _CODE for each in parts):
        raise InputError(f"{where}: is refused: {_ALLOWED}, and this defines something else")
    found = Statement("define", defines=[*_defined(tree, name)])
    if name == "CreateTableAsStmt":
        found.query = RawStream()(tree.query)
    elif name == "RefreshMatViewStmt":
        found.query = f"SELECT * FROM {RawStream()(tree.relation)}"
    return found


def _kinds(tree: Any) -> set[str]:
    """Of what a definition is about, as far as it says so."""
    kinds = (getattr(tree, each, None) for each in ("removeType", "renameType", "objectType", "objtype"))
    return {each.name.removeprefix("OBJECT_") for each in kinds if each is not None}


def _defined(tree: Any, kind: str) -> Iterator[Name]:
    """Return what a definition names. Its parts, such as columns, count as the table."""
    found: list[Any] = [tree.into.rel] if kind == "CreateTableAsStmt" else []
    found += [getattr(tree, each, None) for each in ("relation", "view", "sequence", "typeName", "object")]
    found += getattr(tree, "objects", None) or ()
    names = [_named(each) for each in found if each is not None]
    yield from names
    if kind == "IndexStmt" and tree.idxname:
        yield tree.relation.schemaname or "", tree.idxname
    if kind == "RenameStmt" and not _kinds(tree) & _PARTS:
        yield from ((schema, tree.newname) for schema, _ in names)


def _named(node: Any) -> Name:
    if type(node).__name__ == "RangeVar":
        return _name(node)
    *_, schema, name = ["", *(each.sval for each in getattr(node, "names", node))]
    return schema, name


def _name(relation: Any) -> Name:
    return relation.schemaname or "", relation.relname


def _nodes(tree: Any) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif isinstance(node, Node):
            yield node
            waiting.extend(getattr(node, name) for name in node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Reading):
    """Statements, and the places that they are about.

    Attributes:
        catalogue: the tables that there are before they are run.
        emptied: tables that TRUNCATE names.
    """

    statements: tuple[Statement, ...]
    catalogue: Catalogue
    emptied: frozenset[str]

    @property
    def are_rows(self) -> bool:
        return all(each.kind == "rows" for each in self.statements)


def planned(connection: Any, server: Server, operation: Sql, mode: Mode) -> Planned:
    """Return what statements are about; raise InputError if one is refused, or cannot be undone in this mode."""
    schemas = server.schemas
    catalogue = catalogue_of(connection, schemas)
    statements = tuple(_parsed(operation, number, mode) for number in range(len(operation.statements)))
    defines = {
        _place_defined(name, number, schemas) for number, each in enumerate(statements, 1) for name in each.defines
    }

    def place(name: Name, number: int) -> str:
        found = catalogue.find(name, schemas)
        own = place_of(name[0] or schemas[0], name[1])
        return own if found is None and own in defines else catalogue.known(name, schemas, number)

    writes: dict[str, frozenset[str]] = {}
    reads: set[str] = set()
    emptied: set[str] = set()
    for number, each in enumerate(statements, 1):
        catalogue.require_other_names(each.withs, number)
        reads |= {place(name, number) for name in each.reads}
        for name, verbs in each.writes.items():
            target = place(name, number)
            writes[target] = writes.get(target, frozenset()) | verbs
            if each.kind == "rows":
                key = catalogue.tables[target].key if target in catalogue.tables else ()
                rows = named_rows(operation.statements[number - 1], operation.values_of(number - 1), "postgres", key)
                reads |= {target} if rows is None else {f"{target}/{as_name(row)}" for row in rows}
            else:
                emptied.add(target)
    for each in sorted(catalogue.with_cascades(writes) & catalogue.tables.keys()):
        if refusal := catalogue.tables[each].refusal:
            raise InputError(f"table {each}: {refusal}")
    return Planned(
        statements=statements,
        catalogue=catalogue,
        writes=writes,
        reads=frozenset(reads),
        defines=frozenset(defines),
        emptied=frozenset(emptied),
    )


def _parsed(operation: Sql, number: int, mode: Mode) -> Statement:
    each, where = parsed(operation.statements[number], number + 1), f"statement {number + 1}"
    if operation.values_of(number) and each.kind != "rows":
        raise InputError(f"{where}: values beside it are for statements on rows; write them into it")
    if each.kind != "rows" and mode is not Mode.TRANSACTION:
        raise InputError(
            f'{where}: changes more than rows, which mode "images" cannot undo. Fix: use mode "transaction"'
        )
    return each


def _place_defined(name: Name, number: int, schemas: Sequence[str]) -> str:
    """Return the place of what a statement defines; raise InputError if it is in no schema that may be used."""
    schema = name[0] or schemas[0]
    if schema not in schemas:
        raise InputError(f"statement {number}: {schema}.{name[1]} is in none of the schemas {', '.join(schemas)}")
    return place_of(schema, name[1])
