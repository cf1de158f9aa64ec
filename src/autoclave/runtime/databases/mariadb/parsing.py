"""What a statement of MariaDB is: which tables it writes and reads, and whether its rows can be told beforehand. Pure.

The grammar is sqlglot's, which is not MariaDB's own: so what both could take in different ways (comments, variables,
signs that cannot be seen) is refused, and the rows that a statement was thought to change are compared with what it
changed (`recorder`). Nothing but INSERT, REPLACE, UPDATE and DELETE is let through: all else ends transactions by
itself, or changes more than rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.mariadb.functions import CLOCKS, SETTLED, UNSETTLED, WORDS, words
from autoclave.runtime.databases.mariadb.values import parameter
from autoclave.runtime.databases.operations import Parameter
from autoclave.runtime.quiet import quieten

Name = tuple[str, str]
"""Schema (empty: none said) and name."""
_MOST_CHARACTERS, _MOST_WORDS = 1_000_000, 100_000
"""What can be read in some seconds."""
_ENDS_BY_ITSELF = words(
    """
    alter analyze begin cache change check commit create drop flush grant kill load lock optimize purge rename repair
    reset revoke rollback savepoint set shutdown start stop truncate unlock install uninstall xa
    """
)
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        verb: `insert`, `replace`, `update` or `delete`.
        text: what is run, with values in it.
        writes: tables and verbs of the policy.
        reads: tables that it looks at besides the rows that it writes.
        withs: names that it gives to queries, in small letters.
        columns: those that an INSERT names, or that an UPDATE sets.
        where: the text of its condition, as it stands; empty: none.
        row: the name by which the condition calls the table.
        is_single: whether its rows can be asked for by its condition; of INSERT, whether all of them are new.
        is_settled: whether it would bring the same values again.
        ignores: whether what does not fit is changed until it does.
        returning: where its own RETURNING starts in the text.
    """

    verb: str
    text: str
    writes: dict[Name, frozenset[str]]
    reads: frozenset[Name]
    withs: frozenset[str]
    columns: tuple[str, ...]
    where: str
    row: str
    is_single: bool
    is_settled: bool
    ignores: bool
    returning: int

    @property
    def target(self) -> Name:
        """The table that it writes, where that is one."""
        return next(iter(self.writes))


def parsed(text: str, values: Sequence[Parameter], number: int) -> Statement:
    """What a statement is.

    Raises:
        InputError: it is none, is several, or is none that can be taken back here.
    """
    import sqlglot
    from sqlglot import expressions as exp
    from sqlglot.errors import SqlglotError

    quieten("sqlglot")
    where = f"statement {number}"
    if len(text) > _MOST_CHARACTERS or _UNSEEN.search(text):
        raise InputError(f"{where}: is too long, or holds characters that cannot be seen; give them as parameters")
    try:
        tokens = sqlglot.tokenize(text, dialect="mysql")
        if len(tokens) > _MOST_WORDS:
            raise InputError(f"{where}: has more than {_MOST_WORDS} words; do it in parts")
        verb = _verb(tokens, where)
        text = _filled(text, tokens, values, where)
        tokens = sqlglot.tokenize(text, dialect="mysql")
        plain = f"INSERT{text[tokens[0].end + 1 :]}" if verb == "replace" else text
        trees = [each for each in sqlglot.parse(plain, dialect="mysql") if each is not None]
    except InputError:
        raise
    except (SqlglotError, ValueError, RecursionError):
        raise InputError(f"{where}: cannot be read as SQL of MariaDB that is let through here") from None
    kinds = {"insert": exp.Insert, "replace": exp.Insert, "update": exp.Update, "delete": exp.Delete}
    if len(trees) != 1 or not isinstance(trees[0], kinds[verb]):
        raise InputError(f"{where}: give one INSERT, REPLACE, UPDATE or DELETE in each text")
    functions = _functions(tokens, where)
    return _Reader(verb, text, tokens, trees[0], functions, where).statement()


def _verb(tokens: Sequence[Any], where: str) -> str:
    """The word that a statement starts with, after a look at what may be in none."""
    first = tokens[0].text.lower().partition(" ")[0] if tokens else ""
    if any(token.comments for token in tokens):
        raise InputError(f"{where}: leave comments out: the server runs some of them")
    if first in _ENDS_BY_ITSELF:
        raise InputError(
            f"{where}: {first.upper()} is refused in all modes: MariaDB commits what came before by itself, or changes "
            "what no rollback takes back"
        )
    if first not in ("insert", "replace", "update", "delete"):
        raise InputError(f"{where}: only INSERT, REPLACE, UPDATE and DELETE are let through")
    for token in tokens:
        if token.token_type.name in ("PARAMETER", "SESSION_PARAMETER", "COLON_EQ"):
            raise InputError(f"{where}: variables are not let through: they outlast a rollback")
        if token.text.lower() in ("outfile", "dumpfile", "infile", "delayed") and token.token_type.name != "STRING":
            raise InputError(f"{where}: {token.text.upper()} is not let through")
    if any(token.token_type.name == "SEMICOLON" for token in tokens[:-1]):
        raise InputError(f"{where}: give one statement in each text")
    return first


def _filled(text: str, tokens: Sequence[Any], values: Sequence[Parameter], where: str) -> str:
    """A statement with its values in it, and without a semicolon at its end."""
    marks = [token for token in tokens if token.token_type.name == "PLACEHOLDER"]
    if len(marks) != len(values) or any(token.text != "?" for token in marks):
        raise InputError(f"{where}: has {len(marks)} question marks and {len(values)} values")
    if tokens[-1].token_type.name == "SEMICOLON":
        text = text[: tokens[-1].start]
    for token, value in reversed(list(zip(marks, values, strict=True))):
        text = text[: token.start] + parameter(value) + text[token.end + 1 :]
    return text


def _functions(tokens: Sequence[Any], where: str) -> frozenset[str]:
    """The functions that are called.

    Raises:
        InputError: one may do more than give a value.
    """
    found: set[str] = {
        token.text.lower() for token in tokens if token.token_type.name.startswith(("CURRENT_", "LOCALTIME"))
    }
    for number, token in enumerate(tokens[:-1]):
        name, before = token.text.lower(), tokens[number - 1].text.lower() if number else ""
        name = name.removeprefix("order ").removeprefix("group ")
        if tokens[number + 1].token_type.name != "L_PAREN" or token.token_type.name in _NO_NAMES:
            continue
        is_quoted = token.token_type.name == "IDENTIFIER"
        if _names_table(tokens, number) or (not is_quoted and name in WORDS):
            continue
        if before == "." or is_quoted or name not in SETTLED | UNSETTLED | CLOCKS:
            raise InputError(f"{where}: is refused: the function {token.text} may do more than give a value")
        found.add(name)
    if any(token.text.lower() == "next" and after.text.lower() == "value" for token, after in pairwise(tokens)):
        raise InputError(f"{where}: is refused: numbers of sequences are not given back")
    return frozenset(found)


_NO_NAMES = words(
    """
    COMMA L_PAREN R_PAREN EQ NEQ LT LTE GT GTE PLUS DASH STAR SLASH MOD AMP PIPE CARET TILDE DAMP DPIPE NUMBER ARROW
    DARROW NULLSAFE_EQ NOT
    """
)


def _names_table(tokens: Sequence[Any], number: int) -> bool:
    """Whether a name before a bracket is that of the table of an INSERT, `[INTO] [schema .] table (`."""
    start = number - 2 if number >= 2 and tokens[number - 1].text == "." else number
    before = tokens[start - 1].text.lower() if start else ""
    return (
        start <= 4 and before in ("into", "insert", "replace", "ignore") and tokens[number].token_type.name != "STRING"
    )


class _Reader:
    def __init__(
        self, verb: str, text: str, tokens: Sequence[Any], tree: Any, functions: frozenset[str], where: str
    ) -> None:
        self._verb, self._text, self._tokens, self._tree = verb, text, tokens, tree
        self._functions, self._where = functions, where
        self._clauses = _clauses(tokens)

    def statement(self) -> Statement:
        from sqlglot import expressions as exp

        names = {cte.alias for cte in self._tree.find_all(exp.CTE)}
        tables = [each for each in self._tree.find_all(exp.Table) if each.name and (each.db or each.name not in names)]
        for each in tables:
            if each.catalog or not isinstance(each.this, exp.Identifier):
                raise InputError(f"{self._where}: a table cannot be read")
        writes, is_single, row = self._written(tables)
        seen = self._seen(tables, writes)
        clause = self._clause("where", ("order", "limit", "returning"))
        unsettled = self._functions & UNSETTLED
        return Statement(
            verb=self._verb,
            text=self._text.rstrip(),
            writes=writes,
            reads=frozenset(seen),
            withs=frozenset(map(str.lower, names)),
            columns=self._columns(),
            where=clause.strip(),
            row=row,
            is_single=is_single and not unsettled,
            is_settled=not unsettled and not self._functions & CLOCKS,
            ignores=any(token.text.lower() == "ignore" for token in self._tokens[:3]),
            returning=self._clauses.get("returning", len(self._text)),
        )

    def _seen(self, tables: Sequence[Any], writes: Collection[Name]) -> list[Name]:
        """Tables that are looked at besides the rows that are written."""
        listed = {id(each) for each in self._tree.args.get("tables") or ()}
        listed |= {id(self._tree.this)} if self._tree.args.get("using") else set()
        seen = [_name(each) for each in tables if id(each) not in listed]
        for name in writes:
            seen.remove(name)
        return seen

    def _written(self, tables: Sequence[Any]) -> tuple[dict[Name, frozenset[str]], bool, str]:
        """What is written; whether it is one table, the rows of which can be asked for; and its name in conditions."""
        from sqlglot import expressions as exp

        tree = self._tree
        if isinstance(tree, exp.Insert):
            table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
            verbs = {"create"}
            verbs |= {"delete"} if self._verb == "replace" else set()
            verbs |= {"modify"} if tree.args.get("conflict") else set()
            is_single = self._verb == "insert" and not tree.args.get("conflict")
            return {_name(self._table(table)): frozenset(verbs)}, is_single, ""
        several = tree.args.get("tables") or tree.args.get("using")
        table = self._table(tree.this)
        joined = several or table.args.get("joins")
        verb = "modify" if self._verb == "update" else "delete"
        has_more = {"order", "limit"} & self._clauses.keys() or table.args.get("partition") or tree.args.get("with_")
        if not joined:
            row = table.alias or table.name
            return {_name(table): frozenset({verb})}, not has_more, row
        return dict.fromkeys(self._joined_targets(tables), frozenset({verb})), False, ""

    def _joined_targets(self, tables: Sequence[Any]) -> list[Name]:
        """The tables that a statement over several tables writes.

        Raises:
            InputError: it names one that is not among them.
        """
        from sqlglot import expressions as exp

        tree = self._tree
        listed = list(tree.args.get("tables") or ([tree.this] if tree.args.get("using") else []))
        inner = {id(each) for part in tree.find_all(exp.Select) for each in part.find_all(exp.Table)}
        outer = [each for each in tables if id(each) not in inner | {id(each) for each in listed}]
        by_name = {each.alias or each.name: _name(each) for each in outer}
        if isinstance(tree, exp.Update):
            wanted = {each.this.table for each in tree.expressions}
            return (
                sorted(set(by_name.values())) if wanted - by_name.keys() else sorted({by_name[one] for one in wanted})
            )
        if unknown := [each.name for each in listed if each.name not in by_name]:
            raise InputError(f"{self._where}: deletes from {unknown[0]}, which is none of its tables")
        return sorted({by_name[each.name] for each in listed})

    def _table(self, table: Any) -> Any:
        from sqlglot import expressions as exp

        if not isinstance(table, exp.Table):
            raise InputError(f"{self._where}: name the table that is written")
        return table

    def _columns(self) -> tuple[str, ...]:
        from sqlglot import expressions as exp

        if isinstance(self._tree, exp.Insert):
            return (
                tuple(each.name for each in self._tree.this.expressions)
                if isinstance(self._tree.this, exp.Schema)
                else ()
            )
        if isinstance(self._tree, exp.Update):
            return tuple(each.this.name for each in self._tree.expressions)
        return ()

    def _clause(self, word: str, ends: Sequence[str]) -> str:
        """The text of a clause, without its word."""
        if word not in self._clauses:
            return ""
        start = self._clauses[word] + len(word)
        return self._text[start : min([self._clauses[end] for end in ends if end in self._clauses] + [len(self._text)])]


def _clauses(tokens: Sequence[Any]) -> dict[str, int]:
    """Where clauses of the statement itself, and not of what is in brackets, start."""
    depth, found = 0, dict[str, int]()
    for token in tokens:
        depth += {"L_PAREN": 1, "R_PAREN": -1}.get(token.token_type.name, 0)
        word = token.text.lower().split()[0] if token.text.split() else ""
        if (
            depth == 0
            and token.token_type.name not in ("STRING", "IDENTIFIER", "VAR")
            and word in ("where", "order", "limit")
        ):
            found[word] = token.start
        if depth == 0 and word == "returning" and token.token_type.name == "RETURNING":
            found[word] = token.start
    return found


def _name(table: Any) -> Name:
    return table.db, table.name
