"""What statements of PostgreSQL are about, and which are refused, by PostgreSQL's own grammar. Pure.

This routes, counts and explains. What keeps statements within bounds is the role that runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    "CreateEventTrigStmt",
    "AlterFunctionStmt",
    "CreateCastStmt",
}
_DEFINING = {
    "AlterTableStmt", "DropStmt", "RenameStmt", "AlterObjectSchemaStmt", "CreateEnumStmt", "CompositeTypeStmt",
    "CreateDomainStmt", "AlterDomainStmt", "AlterEnumStmt", "CreatePolicyStmt", "AlterPolicyStmt", "GrantStmt",
    "CreateSeqStmt", "AlterSeqStmt", "CommentStmt", "RefreshMatViewStmt", "CreateRangeStmt", "AlterTypeStmt",
    "CreateStatsStmt", "ViewStmt", "IndexStmt", "CreateStmt", "CreateTableAsStmt", *_CODE,
}  # fmt: skip
_VERBS = {"InsertStmt": "create", "UpdateStmt": "modify", "DeleteStmt": "delete"}

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
        functions: names of functions that it calls, with their schema if it says one.
        filled: columns that an INSERT gives values for; None: all.
        is_code: whether it defines what runs in the actions of others.
        asks_clock: whether it depends on when it is run.
    """

    kind: str
    writes: dict[Name, set[str]] = field(default_factory=dict[Name, set[str]])
    reads: set[Name] = field(default_factory=set[Name])
    defines: list[Name] = field(default_factory=list[Name])
    made: tuple[str, Name] | None = None
    functions: set[Name] = field(default_factory=set[Name])
    withs: set[str] = field(default_factory=set[str])
    filled: frozenset[str] | None = None
    is_code: bool = False
    asks_clock: bool = False


def parsed(text: str, number: int) -> Statement:
    """What a statement is about.

    Raises:
        InputError: it is none, there are several, or it is refused; the message says why.
    """
    import pglast
    from pglast.parser import ParseError

    where = f"statement {number}"
    try:
        trees = pglast.parse_sql(text)
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
        found = Statement("define", defines=list(_defined(tree, name)), is_code=name in _CODE, made=_made(tree, name))
    else:
        raise InputError(f"{where}: is refused: a statement of this kind ({name}) is not known to be taken back")
    _look_into(tree, found)
    if found.kind == "rows" and not found.writes:
        raise InputError(f"{where}: changes nothing that can be taken back, so it is no action")
    return found


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
                found.filled = frozenset(each.name for each in node.cols) if node.cols else None
        elif kind == "MergeStmt":
            targets.add(id(node.relation))
            verbs = {_VERBS.get(f"{each.commandType.name[4:].title()}Stmt", "") for each in node.mergeWhenClauses}
            found.writes.setdefault(_name(node.relation), set()).update(verbs - {""})
        elif kind == "CommonTableExpr":
            found.withs.add(node.ctename)
        elif kind == "FuncCall":
            words = [each.sval for each in node.funcname]
            found.functions.add((words[-2] if len(words) > 1 else "", words[-1]))
        elif kind == "SQLValueFunction":
            found.asks_clock = True
    made = set(found.defines)
    for node in _nodes(tree):
        if type(node).__name__ == "RangeVar" and id(node) not in targets and found.kind != "truncate":
            name = _name(node)
            if name not in made and not (name[0] == "" and name[1] in found.withs):
                found.reads.add(name)


def _defined(tree: Any, kind: str) -> Iterator[Name]:
    relation: Any = getattr(tree, "relation", None) or getattr(tree, "view", None) or getattr(tree, "table", None)
    if kind == "CreateTableAsStmt":
        relation = tree.into.rel
    if kind == "IndexStmt":
        yield (relation.schemaname or "", tree.idxname or "")
    if kind in ("CreateSeqStmt", "AlterSeqStmt"):
        relation = tree.sequence
    if kind == "CompositeTypeStmt":
        relation = tree.typevar
    if relation is not None:
        yield _name(relation)
        return
    for words in (getattr(tree, "funcname", None), getattr(tree, "typeName", None), getattr(tree, "domainname", None)):
        if words and isinstance(words, tuple):
            yield _words(words)
    for each in getattr(tree, "objects", None) or ():
        if type(each).__name__ == "RangeVar":
            yield _name(each)
        else:
            words = getattr(each, "objname", None) or getattr(each, "names", None) or each
            yield _words(words if isinstance(words, tuple) else (words,))


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
