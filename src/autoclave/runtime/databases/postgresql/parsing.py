"""What statements of PostgreSQL are about, and which are refused, by PostgreSQL's own grammar. Pure.

This routes, counts and explains. What keeps statements within bounds is the role that runs them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError

_REASONS = {
    "TransactionStmt": "transactions are begun and ended for it",
    "VariableSetStmt": "settings and roles are not the statement's to change",
    "VariableShowStmt": "it changes nothing",
    "DoStmt": "a block of code does what nobody can see beforehand; give its statements",
    "CallStmt": "a procedure does what nobody can see beforehand, and may commit",
    "CopyStmt": "COPY reads and writes files and programs; give the rows by INSERT",
    "VacuumStmt": "VACUUM and ANALYZE cannot be taken back",
    "CreatedbStmt": "databases are made outside of transactions",
    "DropdbStmt": "databases are dropped outside of transactions",
    "AlterDatabaseStmt": "it changes settings of the whole database",
    "AlterDatabaseSetStmt": "it changes settings of the whole database",
    "AlterSystemStmt": "ALTER SYSTEM changes the server outside of transactions",
    "NotifyStmt": "a notification that was sent cannot be taken back",
    "ListenStmt": "it is about the connection, not about data",
    "UnlistenStmt": "it is about the connection, not about data",
    "LockStmt": "locks are taken for it",
    "PrepareStmt": "it hides what is run",
    "ExecuteStmt": "it hides what is run",
    "DeallocateStmt": "it is about the connection, not about data",
    "DeclareCursorStmt": "it is about the connection, not about data",
    "FetchStmt": "it is about the connection, not about data",
    "ClosePortalStmt": "it is about the connection, not about data",
    "LoadStmt": "it loads a library into the server",
    "DiscardStmt": "it is about the connection, not about data",
    "CreateExtensionStmt": "an extension runs code of its own",
    "ExplainStmt": "it changes nothing",
    "CheckPointStmt": "it cannot be taken back",
    "ClusterStmt": "it changes nothing that can be taken back",
    "ReindexStmt": "it changes nothing that can be taken back",
    "CreateTableSpaceStmt": "tablespaces are made outside of transactions",
    "DropTableSpaceStmt": "tablespaces are dropped outside of transactions",
    "CreateRoleStmt": "roles belong to the whole server",
    "AlterRoleStmt": "roles belong to the whole server",
    "AlterRoleSetStmt": "roles belong to the whole server",
    "DropRoleStmt": "roles belong to the whole server",
    "GrantRoleStmt": "roles belong to the whole server",
    "ConstraintsSetStmt": "constraints are checked at the end of the action",
    "CreateForeignServerStmt": "it reaches another server",
    "CreateUserMappingStmt": "it reaches another server",
    "CreateForeignTableStmt": "it reaches another server",
    "CreateSubscriptionStmt": "it reaches another server",
    "CreatePublicationStmt": "it reaches another server",
    "ImportForeignSchemaStmt": "it reaches another server",
    "SecLabelStmt": "labels are not the statement's to change",
}
_CODE = {
    "CreateFunctionStmt",
    "CreateTrigStmt",
    "RuleStmt",
    "AlterFunctionStmt",
    "CreatePolicyStmt",
    "AlterPolicyStmt",
}
_CODE_KINDS = {
    f"OBJECT_{each}" for each in ("FUNCTION", "PROCEDURE", "ROUTINE", "AGGREGATE", "TRIGGER", "RULE", "POLICY")
}
_SWITCHES = ("Trig", "Rule", "RowSecurity")
"""In the names of parts of ALTER TABLE that switch triggers, rules or policies on or off."""
_DEFINING = {
    "AlterTableStmt", "DropStmt", "RenameStmt", "AlterObjectSchemaStmt", "CreateEnumStmt", "CompositeTypeStmt",
    "CreateDomainStmt", "AlterDomainStmt", "AlterEnumStmt", "GrantStmt",
    "CreateSeqStmt", "AlterSeqStmt", "CommentStmt", "RefreshMatViewStmt", "CreateRangeStmt", "AlterTypeStmt",
    "CreateStatsStmt", "ViewStmt", "IndexStmt", "CreateStmt", "CreateTableAsStmt", *_CODE,
}  # fmt: skip
_IN_SCHEMAS = {
    f"OBJECT_{each}" for each in (
        "TABLE", "VIEW", "MATVIEW", "INDEX", "SEQUENCE", "TYPE", "DOMAIN", "FUNCTION", "PROCEDURE", "AGGREGATE",
        "ROUTINE", "STATISTIC_EXT",
    )
}  # fmt: skip
_IN_TABLES = {
    f"OBJECT_{each}" for each in ("COLUMN", "ATTRIBUTE", "TABCONSTRAINT", "DOMCONSTRAINT", "TRIGGER", "POLICY", "RULE")
}
_MOMENTS = {"now", "today", "tomorrow", "yesterday"}
_VERBS = {"InsertStmt": "create", "UpdateStmt": "modify", "DeleteStmt": "delete"}

_PLAIN_LENGTH, _STACK_PER_SIGN, _MOST_STACK = 10_000, 1024, 1 << 30
"""Bytes of stack are reserved, and taken only where a text is so deep."""

Name = tuple[str, str]
"""Schema (empty: the first that has it) and name."""


@dataclass(slots=True)
class Statement:
    """One statement.

    Attributes:
        kind: `rows`, `truncate`, `define`.
        writes: tables and verbs.
        reads: tables that it looks at besides.
        defines: what it creates, alters or drops.
        made: kind and name of what it does nothing but create, if that can be dropped again.
        query: what fills what it defines.
        functions: names of functions that it calls, with their schema if it says one.
        filled: for each INSERT its table, and the columns that it gives values for, or how many of the first ones.
        defaulted: tables of which it asks to fill columns by themselves.
        is_code: whether it makes, alters, drops, or switches on or off what runs in the actions of others.
        asks_clock: whether it depends on when it is run.
        names_moments: whether a text in it is one that PostgreSQL takes for such a time where one is wanted, as 'now'.
    """

    kind: str
    writes: dict[Name, set[str]] = field(default_factory=dict[Name, set[str]])
    reads: set[Name] = field(default_factory=set[Name])
    defines: list[Name] = field(default_factory=list[Name])
    made: tuple[str, Name] | None = None
    query: str = ""
    functions: set[Name] = field(default_factory=set[Name])
    withs: set[str] = field(default_factory=set[str])
    filled: list[tuple[Name, frozenset[str] | int]] = field(default_factory=list[tuple[Name, frozenset[str] | int]])
    defaulted: set[Name] = field(default_factory=set[Name])
    is_code: bool = False
    asks_clock: bool = False
    names_moments: bool = False


def parsed(text: str, number: int) -> Statement:
    """What a statement is about.

    Raises:
        InputError: it is none, there are several, or it is refused; the message says why.
    """
    import pglast
    from pglast.parser import ParseError

    where = f"statement {number}"
    if "\0" in text:
        raise InputError(f"{where}: cannot be read as SQL: it has a NUL in it")
    try:
        trees = _with_room(lambda: pglast.parse_sql(text), len(text))
    except ParseError as error:
        raise InputError(f"{where}: {error.args[0]}") from None
    except (ValueError, RecursionError, UnicodeError):
        raise InputError(f"{where}: cannot be read as SQL") from None
    if len(trees) != 1:
        raise InputError(f"{where}: holds {len(trees)} statements; give each as a text of its own")
    tree: Any = trees[0].stmt
    name = type(tree).__name__
    if name in _REASONS:
        raise InputError(f"{where}: is refused: {_REASONS[name]}")
    _refuse_parts(tree, where)
    if name in (*_VERBS, "MergeStmt", "SelectStmt"):
        found = Statement("rows")
    elif name == "TruncateStmt":
        found = Statement("truncate", {_name(each): {"delete"} for each in tree.relations})
    elif name in _DEFINING:
        _refuse_beyond(tree, where)
        defines = list(_defined(tree, name))
        if not defines:
            raise InputError(f"{where}: is refused: it names nothing in a schema that it defines")
        found = Statement("define", defines=defines, is_code=_is_code(tree, name), made=_made(tree, name))
        found.query = _query(tree, name)
    else:
        raise InputError(f"{where}: is refused: a statement of this kind ({name}) is not known to be taken back")
    _look_into(tree, found)
    if found.kind == "rows" and not found.writes:
        raise InputError(f"{where}: changes nothing that can be taken back, so it is no action")
    return found


def _with_room(parse: Callable[[], Any], length: int) -> Any:
    """What is parsed, on a stack of its own if need be: the parser goes down into it as deep as a text is, unchecked.

    Raises:
        ValueError: it may be too deep.
    """
    if length <= _PLAIN_LENGTH:
        return parse()
    before = threading.stack_size(min(length * _STACK_PER_SIGN, _MOST_STACK))
    with ThreadPoolExecutor(max_workers=1) as aside:
        try:
            parsing = aside.submit(parse)
        except RuntimeError:  # no thread with so much room
            raise ValueError("too long") from None
        finally:
            threading.stack_size(before)
        return parsing.result()


def called_in(text: str) -> set[Name]:
    """The functions that a text of PostgreSQL's own calls by their names."""
    import pglast

    return {
        _words(node.funcname) for node in _nodes(tuple(pglast.parse_sql(text))) if type(node).__name__ == "FuncCall"
    }


def _refuse_parts(tree: Any, where: str) -> None:
    for node in _nodes(tree):
        kind = type(node).__name__
        if kind == "RangeVar" and node.relpersistence == "t":
            raise InputError(f"{where}: is refused: temporary tables end with the connection")
        if kind == "IntoClause" and type(tree).__name__ == "SelectStmt":
            raise InputError(f"{where}: is refused: SELECT INTO makes a table; say CREATE TABLE ... AS")
        if kind in ("IndexStmt", "DropStmt") and node.concurrent:
            raise InputError(f"{where}: is refused: CONCURRENTLY works outside of transactions")
        if kind == "RefreshMatViewStmt" and node.concurrent:
            raise InputError(f"{where}: is refused: CONCURRENTLY is not taken back with its locks")
        if kind == "RangeVar" and node.catalogname:
            raise InputError(f"{where}: is refused: it names another database")


def _look_into(tree: Any, found: Statement) -> None:
    """Gather tables, functions and the clock from all parts of a statement."""
    targets: set[int] = set()
    for node in _nodes(tree):
        kind = type(node).__name__
        if kind in _VERBS:
            targets.add(id(node.relation))
            verbs = found.writes.setdefault(_name(node.relation), set())
            verbs.add(_VERBS[kind])
            if kind == "InsertStmt":
                if node.onConflictClause and node.onConflictClause.action.name.endswith("UPDATE"):
                    verbs.add("modify")
                found.filled.append((_name(node.relation), _filled(node)))
        elif kind == "MergeStmt":
            targets.add(id(node.relation))
            verbs = {_VERBS.get(f"{each.commandType.name[4:].title()}Stmt", "") for each in node.mergeWhenClauses}
            found.writes.setdefault(_name(node.relation), set()).update(verbs - {""})
            found.filled += [
                (
                    _name(node.relation),
                    frozenset(column.name for column in each.targetList or ()) or len(each.values or ()),
                )
                for each in node.mergeWhenClauses
                if each.commandType.name == "CMD_INSERT"
            ]
        elif kind == "CommonTableExpr":
            found.withs.add(node.ctename)
        elif kind == "FuncCall":
            found.functions.add(_words(node.funcname))
        elif kind == "SQLValueFunction":
            found.asks_clock = True
        elif kind == "A_Const" and (text := getattr(node.val, "sval", "")):
            found.names_moments |= text.strip().lower() in _MOMENTS
        if kind in (*_VERBS, "MergeStmt") and _asks_for_defaults(node):
            found.defaulted.add(_name(node.relation))
    made = set(found.defines)
    for node in _nodes(tree):
        if type(node).__name__ == "RangeVar" and id(node) not in targets and found.kind != "truncate":
            name = _name(node)
            if name not in made and not (name[0] == "" and name[1] in found.withs):
                found.reads.add(name)


def _filled(insert: Any) -> frozenset[str] | int:
    """The columns that an INSERT gives values for, or how many of the first ones."""
    if insert.cols:
        return frozenset(each.name for each in insert.cols)
    given: Any = insert.selectStmt
    if given is None or given.op.name != "SETOP_NONE":
        return 0
    if given.valuesLists:
        return min(len(row) for row in given.valuesLists)
    is_star = any(type(node).__name__ == "A_Star" for node in _nodes(given.targetList))
    return 0 if is_star else len(given.targetList or ())


def _asks_for_defaults(node: Any) -> bool:
    """Whether some columns are to fill themselves, though a statement names them."""
    override = getattr(node, "override", None)
    is_overridden = override is not None and override.name == "OVERRIDING_USER_VALUE"
    return is_overridden or any(type(each).__name__ == "SetToDefault" for each in _nodes(node))


def _refuse_beyond(tree: Any, where: str) -> None:
    """Refuse definitions that are about more than they name, or about what is in no schema."""
    if any(getattr(getattr(node, "behavior", None), "name", "") == "DROP_CASCADE" for node in _nodes(tree)):
        raise InputError(f"{where}: is refused: CASCADE drops what the statement does not name; name it")
    for kind in (each.name for each in _kinds(tree)):
        if kind not in _IN_SCHEMAS | _IN_TABLES:
            raise InputError(f"{where}: is refused: it is about more than something in a schema")
    if type(tree).__name__ == "GrantStmt" and tree.targtype.name != "ACL_TARGET_OBJECT":
        raise InputError(f"{where}: is refused: it is about more than it names; name each")


def _is_code(tree: Any, kind: str) -> bool:
    """See `Statement`. A comment changes nothing that runs."""
    about = {each.name for each in _kinds(tree)} if kind != "CommentStmt" else set[str]()
    parts = getattr(tree, "cmds", None) or () if kind == "AlterTableStmt" else ()
    return (
        kind in _CODE
        or bool(about & _CODE_KINDS)
        or any(word in each.subtype.name for each in parts for word in _SWITCHES)
    )


def _kinds(tree: Any) -> list[Any]:
    """Of what a definition is about, as far as it says so."""
    kinds = (getattr(tree, each, None) for each in ("removeType", "renameType", "objectType", "objtype"))
    return [each for each in kinds if each is not None]


def _defined(tree: Any, kind: str) -> Iterator[Name]:
    """What a definition names. Its parts, such as columns and triggers, count as the table."""
    sources = ("relation", "view", "table", "sequence", "typevar", "funcname", "typeName", "domainname", "defnames")
    found: list[Any] = [tree.into.rel] if kind == "CreateTableAsStmt" else []
    found += [getattr(tree, each, None) for each in (*sources, "func")]
    kinds = [getattr(tree, each, None) for each in ("removeType", "renameType", "objtype")]
    is_part = any(each is not None and each.name in _IN_TABLES for each in kinds)
    for each in (*(getattr(tree, "objects", None) or ()), getattr(tree, "object", None)):
        found.append(each[:-1] if is_part and isinstance(each, tuple) and kind != "RenameStmt" else each)
    names = [_named(each) for each in found if each is not None]
    yield from names
    if kind == "IndexStmt" and tree.idxname:
        yield tree.relation.schemaname or "", tree.idxname
    if kind == "RenameStmt" and not is_part:
        yield from ((schema, tree.newname) for schema, _ in names)
    if kind == "AlterObjectSchemaStmt":
        yield from ((tree.newschema, name) for _, name in names)


def _named(node: Any) -> Name:
    if type(node).__name__ == "RangeVar":
        return _name(node)
    words = getattr(node, "objname", None) or getattr(node, "names", None) or node
    if isinstance(words, tuple) and words and type(words[0]).__name__ == "TypeName":
        words = words[0].names
    return _words(words if isinstance(words, tuple) else (words,))


def _query(tree: Any, kind: str) -> str:
    """What a definition reads its rows from."""
    from pglast.stream import RawStream

    if kind == "CreateTableAsStmt":
        return RawStream()(tree.query)
    return f"SELECT * FROM {RawStream()(tree.relation)}" if kind == "RefreshMatViewStmt" else ""


def _made(tree: Any, kind: str) -> tuple[str, Name] | None:
    if kind in ("CreateStmt", "CreateTableAsStmt"):
        relation = tree.relation if kind == "CreateStmt" else tree.into.rel
        if tree.if_not_exists or getattr(tree, "inhRelations", None) or getattr(tree, "partbound", None):
            return None
        if kind == "CreateTableAsStmt" and tree.objtype.name != "OBJECT_TABLE":
            return None
        return "table", _name(relation)
    if kind == "IndexStmt" and tree.idxname and not tree.if_not_exists:
        return "index", (tree.relation.schemaname or "", tree.idxname)
    if kind == "ViewStmt" and not tree.replace:
        return "view", _name(tree.view)
    return None


def _words(words: tuple[Any, ...]) -> Name:
    texts = [each.sval for each in words if hasattr(each, "sval")]
    return ("", "") if not texts else (texts[-2] if len(texts) > 1 else "", texts[-1])


def _name(relation: Any) -> Name:
    return relation.schemaname or "", relation.relname


def _nodes(tree: Any) -> Iterator[Any]:
    """A node and all below it."""
    from pglast.ast import Node

    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif isinstance(node, Node):
            yield node
            waiting.extend(getattr(node, name) for name in node)
