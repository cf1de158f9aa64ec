"""Parses a MariaDB statement: the tables it writes and reads, and whether its rows are known beforehand. Pure.

The grammar is sqlglot's, which is not MariaDB's own: so what both could take in different ways (comments, variables,
signs that cannot be seen) is refused, and the rows that a statement was thought to change are compared with what it
changed (`rows`). Nothing but INSERT, REPLACE, UPDATE and DELETE is let through: all else ends transactions by
itself, or changes more than rows; and no functions but those of MariaDB's own that do nothing but give a value. One of
somebody's own may write anywhere, and nobody would see it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.core.sections import read_sections
from autoclave.runtime.databases.mariadb.values import parameter, words
from autoclave.runtime.databases.operations import Parameter
from autoclave.runtime.databases.tables import Name
from autoclave.runtime.quiet import quieten

_WORDS = {name: words(" ".join(lines)) for name, lines in read_sections(Path(__file__).with_name("words.txt")).items()}
CLOCKS = _WORDS["clocks"]
"""Their clock stands still in a transaction of ours, and is another the next time."""
NONDETERMINISTIC = _WORDS["nondeterministic"]
"""Each call may give another value."""
DETERMINISTIC = _WORDS["deterministic"]
"""They give the same for the same rows: numbers, texts, choices, times, aggregates, JSON, shapes."""
WORDS = _WORDS["words"]
"""After which a bracket opens without any call."""


_MOST_CHARACTERS, _MOST_WORDS = 1_000_000, 100_000
"""The longest statement that is parsed within seconds."""
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_POLICY = {"insert": "create", "replace": "create", "update": "modify", "delete": "delete"}
_NO_NAMES = _WORDS["no names"]


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        verb: `insert`, `replace`, `update` or `delete`.
        text: what is run, with values in it.
        table: the one that it writes.
        verbs: those of the policy.
        reads: tables that it looks at besides the rows that it writes.
        withs: names that it gives to queries.
        columns: those that an INSERT names, or that an UPDATE sets.
        where: the text of its condition, as it stands; empty: none.
        row: the name by which the condition calls the table.
        is_single: whether its rows can be asked for by its condition; of INSERT, whether all of them are new.
        is_deterministic: whether it would bring the same values again.
        ignores: whether what does not fit is changed until it does.
        returning: where its own RETURNING starts in the text.
    """

    verb: str
    text: str
    table: Name
    verbs: frozenset[str]
    reads: frozenset[Name]
    withs: frozenset[str]
    columns: tuple[str, ...]
    where: str
    row: str
    is_single: bool
    is_deterministic: bool
    ignores: bool
    returning: int


def parsed(text: str, values: Sequence[Parameter], number: int) -> Statement:
    """Return what a statement is; raise InputError if it is none, is several, or cannot be undone here."""
    import sqlglot
    from sqlglot import expressions as exp
    from sqlglot.errors import SqlglotError

    quieten("sqlglot")
    where = f"statement {number}"
    if len(text) > _MOST_CHARACTERS or _UNSEEN.search(text):
        raise InputError(f"{where}: is too long, or holds characters that cannot be seen; give them as parameters")
    try:
        tokens = sqlglot.tokenize(text, dialect="mysql")
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
    return _statement(verb, text, tokens, trees[0], where)


def _verb(tokens: Sequence[Any], where: str) -> str:
    """The word that a statement starts with, after a look at what may be in none."""
    first = tokens[0].text.lower().partition(" ")[0] if tokens else ""
    if first not in _POLICY:
        raise InputError(
            f"{where}: {first.upper()} is refused in all modes: only INSERT, REPLACE, UPDATE and DELETE are let "
            "through, since MariaDB commits by itself before most others"
        )
    if any(token.comments for token in tokens):
        raise InputError(f"{where}: leave comments out: the server runs some of them")
    if len(tokens) > _MOST_WORDS or any(token.token_type.name == "SEMICOLON" for token in tokens[:-1]):
        raise InputError(f"{where}: give one statement in each text, of {_MOST_WORDS} words at most")
    for token, after in pairwise([*tokens, tokens[-1]]):
        word, kind = token.text.lower(), token.token_type.name
        if (
            kind in ("PARAMETER", "SESSION_PARAMETER", "COLON_EQ")
            or (word in ("outfile", "dumpfile", "infile", "delayed") and kind != "STRING")
            or (word, after.text.lower()) == ("next", "value")
        ):
            raise InputError(f"{where}: variables, files, DELAYED and sequences are refused: they outlast a rollback")
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
    return text.rstrip()


def _functions(tokens: Sequence[Any], where: str) -> set[str]:
    """The functions that are called. Raises InputError where one may do more than give a value."""
    found = {token.text.lower() for token in tokens if token.token_type.name.startswith(("CURRENT_", "LOCALTIME"))}
    for number, (token, after) in enumerate(pairwise(tokens)):
        name, kind = token.text.lower().removeprefix("order ").removeprefix("group "), token.token_type.name
        if after.token_type.name != "L_PAREN" or kind in _NO_NAMES or _names_table(tokens, number):
            continue
        is_plain = kind != "IDENTIFIER" and not (number and tokens[number - 1].text == ".")
        if kind != "IDENTIFIER" and name in WORDS:
            continue
        if not is_plain or name not in DETERMINISTIC | NONDETERMINISTIC | CLOCKS:
            raise InputError(f"{where}: is refused: the function {token.text} may do more than give a value")
        found.add(name)
    return found


def _names_table(tokens: Sequence[Any], number: int) -> bool:
    """Return whether a name before a bracket is that of the table of an INSERT, `[INTO] [schema .] table (`."""
    start = number - 2 if number >= 2 and tokens[number - 1].text == "." else number
    before = tokens[start - 1].text.lower() if start else ""
    return (
        start <= 4 and before in ("into", "insert", "replace", "ignore") and tokens[number].token_type.name != "STRING"
    )


def _statement(verb: str, text: str, tokens: Sequence[Any], tree: Any, where: str) -> Statement:
    from sqlglot import expressions as exp

    functions, clauses = _functions(tokens, where), _clauses(tokens)
    withs = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables = [each for each in tree.find_all(exp.Table) if each.name and (each.db or each.name not in withs)]
    is_insert, target, columns = isinstance(tree, exp.Insert), tree.this, ()
    if isinstance(target, exp.Schema):
        target, columns = target.this, tuple(each.name for each in target.expressions)
    elif isinstance(tree, exp.Update):
        columns = tuple(each.this.name for each in tree.expressions)
    if not isinstance(target, exp.Table) or any(
        each.catalog or not isinstance(each.this, exp.Identifier) for each in tables
    ):
        raise InputError(f"{where}: a table cannot be read; name the table that is written")
    if not is_insert and (tree.args.get("tables") or tree.args.get("using") or target.args.get("joins")):
        raise InputError(f"{where}: is refused: it joins tables. Fix: write one table, and name others in subqueries")
    verbs = {_POLICY[verb]} | ({"delete"} if verb == "replace" else set())
    verbs |= {"modify"} if is_insert and tree.args.get("conflict") else set()
    has_more = {"order", "limit"} & clauses.keys() or target.args.get("partition") or tree.args.get("with_")
    is_single = verbs == {"create"} if is_insert else not has_more
    ends = [clauses[word] for word in ("order", "limit", "returning") if word in clauses]
    begins = clauses["where"] + len("where") if "where" in clauses else len(text)
    nondeterministic = functions & NONDETERMINISTIC
    return Statement(
        verb=verb,
        text=text,
        table=_name(target),
        verbs=frozenset(verbs),
        reads=frozenset(_name(each) for each in tables if each is not target),
        withs=frozenset(withs),
        columns=columns,
        where=text[begins : min([*ends, len(text)])].strip(),
        row="" if is_insert else target.alias or target.name,
        is_single=is_single and not nondeterministic,
        is_deterministic=not nondeterministic and not functions & CLOCKS,
        ignores=any(token.text.lower() == "ignore" for token in tokens[:3]),
        returning=clauses.get("returning", len(text)),
    )


def _clauses(tokens: Sequence[Any]) -> dict[str, int]:
    """Return where clauses of the statement itself, and not of what is in brackets, start."""
    depth, found = 0, dict[str, int]()
    for token in tokens:
        kind, word = token.token_type.name, (token.text.lower().split() or [""])[0]
        depth += {"L_PAREN": 1, "R_PAREN": -1}.get(kind, 0)
        is_word = word in ("where", "order", "limit") and kind not in ("STRING", "IDENTIFIER", "VAR")
        if depth == 0 and (is_word or kind == "RETURNING"):
            found[word] = token.start
    return found


def _name(table: Any) -> Name:
    return table.db, table.name
