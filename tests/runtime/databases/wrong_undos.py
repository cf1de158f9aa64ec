"""Actions with an undo that is right on whatever rows there are, and wrong ones made of them by mutation.

A mutant is one mistake that whoever writes an undo could make. Mutants that do what the right undo does, because of a
constraint of the schema, are no mistakes: `EQUIVALENT` says of each why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import expressions as exp

_TABLES = """
CREATE TABLE kind (name TEXT PRIMARY KEY NOT NULL, note TEXT DEFAULT 'none', rank INTEGER NOT NULL DEFAULT 0);
CREATE TABLE item (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER CHECK (price >= 0),
    state TEXT NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'sold', 'gone')),
    kind TEXT REFERENCES kind (name) ON DELETE CASCADE ON UPDATE CASCADE, is_open BOOLEAN NOT NULL DEFAULT TRUE,
    num_reviews INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE review (
    id INTEGER PRIMARY KEY, item INTEGER REFERENCES item (id) ON DELETE SET NULL,
    stars INTEGER NOT NULL CHECK (stars BETWEEN 1 AND 5), text TEXT
);
CREATE TABLE place (
    shelf TEXT NOT NULL, row_no INTEGER NOT NULL, item INTEGER REFERENCES item (id) ON DELETE CASCADE,
    PRIMARY KEY (shelf, row_no)
);
CREATE TABLE placed (shelf TEXT NOT NULL, row_no INTEGER NOT NULL, PRIMARY KEY (shelf, row_no));
CREATE TABLE stock (
    shelf TEXT NOT NULL, row_no INTEGER NOT NULL, batch INTEGER NOT NULL, amount INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (shelf, row_no, batch),
    FOREIGN KEY (shelf, row_no) REFERENCES place (shelf, row_no) ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE TABLE part (id INTEGER PRIMARY KEY, whole INTEGER REFERENCES part (id) ON DELETE CASCADE, weight REAL);
CREATE TABLE pair (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER NOT NULL, code TEXT UNIQUE);
CREATE TABLE note (text TEXT, number INTEGER);
"""
SQLITE = (
    _TABLES
    + """
CREATE TRIGGER reviewed AFTER INSERT ON review BEGIN
    UPDATE item SET num_reviews = num_reviews + 1 WHERE id = NEW.item; END;
CREATE TRIGGER unreviewed AFTER DELETE ON review BEGIN
    UPDATE item SET num_reviews = num_reviews - 1 WHERE id = OLD.item; END;
CREATE TRIGGER is_placed AFTER INSERT ON place BEGIN INSERT INTO placed VALUES (NEW.shelf, NEW.row_no); END;
"""
)
POSTGRESQL = (
    _TABLES
    + """
CREATE FUNCTION count_reviews() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN UPDATE public.item SET num_reviews = num_reviews + 1 WHERE id = NEW.item;
    ELSE UPDATE public.item SET num_reviews = num_reviews - 1 WHERE id = OLD.item; END IF; RETURN NULL; END $$;
CREATE TRIGGER reviewed AFTER INSERT OR DELETE ON review FOR EACH ROW EXECUTE FUNCTION count_reviews();
CREATE FUNCTION note_place() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.placed VALUES (NEW.shelf, NEW.row_no); RETURN NULL; END $$;
CREATE TRIGGER is_placed AFTER INSERT ON place FOR EACH ROW EXECUTE FUNCTION note_place();
"""
)
MARIADB = [
    each.replace("(name TEXT PRIMARY", "(name VARCHAR(300) PRIMARY")
    .replace("kind TEXT REFERENCES", "kind VARCHAR(300) REFERENCES")
    .replace("shelf TEXT", "shelf VARCHAR(60)")
    .replace("code TEXT", "code VARCHAR(60)")
    .replace("rank INTEGER", "`rank` INTEGER")
    + " COLLATE utf8mb4_nopad_bin"
    for each in filter(str.strip, _TABLES.split(";\n"))
]
"""With texts that are the same only if they are so to the byte, as in the other engines."""


@dataclass(frozen=True)
class Pair:
    """An action and an undo. `mistake`: what was done to the right one; empty for the right one itself."""

    name: str
    act: tuple[str, ...]
    undo: tuple[str, ...]
    mistake: str = ""

    @property
    def id(self) -> str:
        return f"{self.name}: {self.mistake}" if self.mistake else self.name


def _pair(name: str, act: str, undo: str) -> Pair:
    return Pair(name, tuple(act.split("; ")), tuple(undo.split("; ")))


RIGHT = [
    _pair("a kind", "INSERT INTO kind (name) VALUES ('toy')", "DELETE FROM kind WHERE name = 'toy'"),
    _pair("a full kind", "INSERT INTO kind VALUES ('toy', 'n', 3)", "DELETE FROM kind WHERE name = 'toy'"),
    _pair(
        "an item",
        "INSERT INTO item (id, name, price, kind) VALUES (7, 'lamp', 30, 'book')",
        "DELETE FROM item WHERE id = 7",
    ),
    _pair(
        "two items",
        "INSERT INTO item (id, name) VALUES (7, 'lamp'), (8, 'lamp')",
        "DELETE FROM item WHERE id IN (7, 8)",
    ),
    _pair(
        "an item of a new kind",
        "INSERT INTO kind (name) VALUES ('toy'); INSERT INTO item (id, name, kind) VALUES (7, 'bear', 'toy')",
        "DELETE FROM item WHERE id = 7; DELETE FROM kind WHERE name = 'toy'",
    ),
    _pair(
        "a new kind, and an item that goes with it",
        "INSERT INTO kind (name) VALUES ('toy'); INSERT INTO item (id, name, kind) VALUES (7, 'bear', 'toy')",
        "DELETE FROM kind WHERE name = 'toy'",
    ),
    _pair(
        "a review that is counted",
        "INSERT INTO review (id, item, stars, text) VALUES (70, 3, 4, 'good')",
        "DELETE FROM review WHERE id = 70",
    ),
    _pair(
        "a place that is noted",
        "INSERT INTO place (shelf, row_no, item) VALUES ('Q', 9, NULL)",
        "DELETE FROM placed WHERE shelf = 'Q' AND row_no = 9; DELETE FROM place WHERE shelf = 'Q' AND row_no = 9",
    ),
    _pair(
        "a batch",
        "INSERT INTO stock VALUES ('A', 1, 5, 20)",
        "DELETE FROM stock WHERE shelf = 'A' AND row_no = 1 AND batch = 5",
    ),
    _pair("a part of a part", "INSERT INTO part VALUES (50, 4, 2.5)", "DELETE FROM part WHERE id = 50"),
    _pair(
        "a part with its own",
        "INSERT INTO part VALUES (50, NULL, 1); INSERT INTO part VALUES (51, 50, 2)",
        "DELETE FROM part WHERE id = 51; DELETE FROM part WHERE id = 50",
    ),
    _pair("a code", "INSERT INTO pair VALUES (9, 1, 2, 'c9')", "DELETE FROM pair WHERE code = 'c9'"),
    _pair(
        "dearer books",
        "UPDATE item SET price = price + 5 WHERE kind = 'book'",
        "UPDATE item SET price = price - 5 WHERE kind = 'book'",
    ),
    _pair("twice the price", "UPDATE item SET price = price * 2", "UPDATE item SET price = price / 2"),
    _pair(
        "thrice, for a state",
        "UPDATE item SET price = price * 3 WHERE state = 'new'",
        "UPDATE item SET price = price / 3 WHERE state = 'new'",
    ),
    _pair("higher ranks", "UPDATE kind SET rank = rank + 1", "UPDATE kind SET rank = rank - 1"),
    _pair("ranks upside down", "UPDATE kind SET rank = -rank", "UPDATE kind SET rank = -rank"),
    _pair(
        "open or not",
        "UPDATE item SET is_open = NOT is_open WHERE id = 3",
        "UPDATE item SET is_open = NOT is_open WHERE id = 3",
    ),
    _pair(
        "a kind that is renamed",
        "UPDATE kind SET name = 'boek' WHERE name = 'book'",
        "UPDATE kind SET name = 'book' WHERE name = 'boek'",
    ),
    _pair(
        "rows that are moved",
        "UPDATE place SET row_no = row_no + 100 WHERE shelf = 'A'",
        "UPDATE place SET row_no = row_no - 100 WHERE shelf = 'A'",
    ),
    _pair(
        "a longer name",
        "UPDATE item SET name = name || '!' WHERE price > 10",
        "UPDATE item SET name = SUBSTR(name, 1, LENGTH(name) - 1) WHERE price > 10",
    ),
    _pair(
        "a name with a mark before it",
        "UPDATE item SET name = 'x' || name",
        "UPDATE item SET name = SUBSTR(name, 2)",
    ),
    _pair(
        "two that are swapped",
        "UPDATE pair SET a = b, b = a WHERE NOT a IS NULL",
        "UPDATE pair SET a = b, b = a WHERE NOT a IS NULL",
    ),
    _pair("a sum", "UPDATE pair SET a = a + b", "UPDATE pair SET a = a - b"),
    _pair("more and less", "UPDATE pair SET a = a + 1, b = b - 1", "UPDATE pair SET a = a - 1, b = b + 1"),
    _pair("weights", "UPDATE part SET weight = weight * 2", "UPDATE part SET weight = weight / 2"),
    _pair(
        "amounts of a place",
        "UPDATE stock SET amount = amount + 7 WHERE shelf = 'A' AND row_no = 1",
        "UPDATE stock SET amount = amount - 7 WHERE shelf = 'A' AND row_no = 1",
    ),
    _pair("stars that are turned", "UPDATE review SET stars = 6 - stars", "UPDATE review SET stars = 6 - stars"),
    _pair(
        "one number that is another",
        "UPDATE pair SET id = 1003 WHERE id = 3",
        "UPDATE pair SET id = 3 WHERE id = 1003",
    ),
    _pair(
        "one code that is another",
        "UPDATE pair SET code = 'new' WHERE code = 'old'",
        "UPDATE pair SET code = 'old' WHERE code = 'new'",
    ),
    _pair(
        "states that change places",
        "UPDATE item SET state = CASE state WHEN 'new' THEN 'sold' WHEN 'sold' THEN 'new' ELSE state END",
        "UPDATE item SET state = CASE state WHEN 'new' THEN 'sold' WHEN 'sold' THEN 'new' ELSE state END",
    ),
    _pair(
        "one step after the other",
        "UPDATE kind SET rank = rank + 3; UPDATE kind SET rank = rank * 2",
        "UPDATE kind SET rank = rank / 2; UPDATE kind SET rank = rank - 3",
    ),
    _pair(
        "two tables",
        "UPDATE kind SET rank = rank + 1 WHERE name = 'book'; UPDATE pair SET a = a + 1 WHERE b = 2",
        "UPDATE pair SET a = a - 1 WHERE b = 2; UPDATE kind SET rank = rank - 1 WHERE name = 'book'",
    ),
    _pair("numbers without a key", "UPDATE note SET number = number + 1", "UPDATE note SET number = number - 1"),
    _pair(
        "some of those without a key",
        "UPDATE note SET number = number + 10 WHERE text = 'due'",
        "UPDATE note SET number = number - 10 WHERE text = 'due'",
    ),
]
"""Right on whatever rows the constraints permit."""


# --- Mistakes, each made of a statement ------------------------------------------------------------------------------

Mutation = Callable[[Any], Iterator[tuple[str, Any]]]
_KEYS = {"kind": "name", "item": "id", "review": "id", "part": "id", "pair": "id", "place": "row_no", "stock": "batch"}
_COLUMNS = {
    "kind": {"note": "text", "rank": "number", "name": "text"},
    "item": {"name": "text", "price": "number", "num_reviews": "number", "state": "text", "id": "number"},
    "review": {"stars": "number", "text": "text", "item": "number", "id": "number"},
    "place": {"row_no": "number", "item": "number", "shelf": "text"},
    "placed": {"row_no": "number", "shelf": "text"},
    "stock": {"amount": "number", "batch": "number", "row_no": "number", "shelf": "text"},
    "part": {"weight": "number", "id": "number", "whole": "number"},
    "pair": {"a": "number", "b": "number", "id": "number", "code": "text"},
    "note": {"number": "number", "text": "text"},
}
_NULLABLE = {
    "kind": {"note"},
    "item": {"price", "kind"},
    "review": {"item", "text"},
    "place": {"item"},
    "placed": set[str](),
    "stock": set[str](),
    "part": {"whole", "weight"},
    "pair": {"a", "code"},
    "note": {"text", "number"},
}
_DEFAULTS = {"rank": "0", "note": "'none'", "state": "'new'", "num_reviews": "0", "amount": "1", "is_open": "TRUE"}
_CONSTANTS = {"number": "3", "text": "'sold'"}


def _table(tree: Any) -> str:
    return tree.find(exp.Table).name


def _changed(tree: Any, node: Any, other: str | Any) -> Any:
    """A copy of a tree in which one node is another."""
    copy = tree.copy()
    for own, new in zip(tree.walk(), list(copy.walk()), strict=True):
        if own is node:
            new.replace(sqlglot.parse_one(other) if isinstance(other, str) else other)
    return copy


def over_wide(tree: Any) -> Iterator[tuple[str, Any]]:
    where = tree.args.get("where")
    if where is None:
        return
    copy = tree.copy()
    copy.set("where", None)
    yield "without its WHERE", copy
    if isinstance(where.this, exp.And):
        for side in ("left", "right"):
            yield f"only the {side} of its WHERE", _changed(tree, where.this, getattr(where.this, side).copy())
    for node in where.find_all(exp.EQ):
        if node.left.name not in _NULLABLE[_table(tree)]:
            continue
        yield "or NULL", _changed(tree, node, f"({node.sql()} OR {node.left.sql()} IS NULL)")


def too_narrow(tree: Any) -> Iterator[tuple[str, Any]]:
    copy = tree.copy()
    yield "does nothing", copy.where("1 = 0")
    yield "only the first", tree.copy().where(f"{_KEYS.get(_table(tree), 'number')} = 1")


def off_by_one(tree: Any) -> Iterator[tuple[str, Any]]:
    for node in tree.find_all(exp.Literal):
        if not node.is_string:
            for step in (1, -1):
                yield f"{node.this} {step:+d}", _changed(tree, node, f"{int(node.this) + step}")


def other_texts(tree: Any) -> Iterator[tuple[str, Any]]:
    for node in tree.find_all(exp.Literal):
        if node.is_string and node.this:
            for text in (node.this.upper(), node.this[:-1], f"{node.this} ", node.this.title()):
                if text != node.this:
                    yield f"'{text}' for '{node.this}'", _changed(tree, node, exp.Literal.string(text))


def other_signs(tree: Any) -> Iterator[tuple[str, Any]]:
    swapped = {exp.Add: exp.Sub, exp.Sub: exp.Add, exp.Mul: exp.Div, exp.Div: exp.Mul, exp.EQ: exp.GTE, exp.GT: exp.GTE}
    assigned = {id(each) for each in tree.expressions}
    for node in tree.find_all(*swapped):
        if id(node) not in assigned:
            new = swapped[type(node)](this=node.this.copy(), expression=node.expression.copy())
            yield f"{type(new).__name__} for {type(node).__name__} in {node.sql()}", _changed(tree, node, new)


def other_columns(tree: Any) -> Iterator[tuple[str, Any]]:
    known = _COLUMNS[_table(tree)]
    for node in tree.find_all(exp.Column):
        for other, kind in known.items():
            if other != node.name and kind == known.get(node.name):
                yield f"{other} for {node.name} in {node.parent.sql()}", _changed(tree, node, exp.column(other))


def other_values(tree: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, exp.Update):
        return
    for node in tree.expressions:
        column, value = node.this.name, node.expression
        kind = _COLUMNS[_table(tree)].get(column, "")
        yield f"{column} set to NULL", _changed(tree, value, "NULL")
        if column in _DEFAULTS:
            yield f"{column} set to its default", _changed(tree, value, _DEFAULTS[column])
        if kind:
            yield f"{column} set to a constant", _changed(tree, value, _CONSTANTS[kind])
        if kind == "number" and not isinstance(value, exp.Literal):
            if column in _NULLABLE[_table(tree)]:
                nulls = f"COALESCE({column}, 0)"
                yield f"{column} NULL as 0", _changed(tree, value, value.sql().replace(column, nulls))
            yield f"{column} never below 0", _changed(tree, value, f"ABS({value.sql()})")
            yield f"{column} of the first row", _changed(tree, value, f"(SELECT MIN({column}) FROM {_table(tree)})")
        if kind == "text" and not isinstance(value, exp.Literal):
            yield f"{column} in small letters", _changed(tree, value, f"LOWER({value.sql()})")
            yield f"{column} trimmed", _changed(tree, value, f"TRIM({value.sql()})")
            yield f"{column} cut off", _changed(tree, value, f"SUBSTR({value.sql()}, 1, 3)")


def others_deleted(tree: Any) -> Iterator[tuple[str, Any]]:
    table = _table(tree)
    key = _KEYS.get(table)
    if not isinstance(tree, exp.Delete) or key is None:
        return
    for how in ("MAX", "MIN"):
        copy = tree.copy()
        copy.set("where", None)
        yield f"the {how} deleted", copy.where(f"{key} = (SELECT {how}({key}) FROM {table})")
    for node in tree.args["where"].find_all(exp.EQ):
        if node.expression.is_string:
            column = node.left.sql()
            yield "any case", _changed(tree, node, f"LOWER({column}) = LOWER({node.expression.sql()})")
            yield "what begins like it", _changed(tree, node, f"{column} LIKE '{node.expression.this[0]}%'")


_MUTATIONS: tuple[Mutation, ...] = (
    over_wide,
    too_narrow,
    off_by_one,
    other_texts,
    other_signs,
    other_columns,
    other_values,
    others_deleted,
)


def mutants(dialect: str) -> list[Pair]:
    """Wrong undos, each once."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], Pair] = {}
    for pair in RIGHT:
        for mistake, undo in _mutated(pair, dialect):
            if undo != pair.undo:
                found.setdefault((pair.act, undo), Pair(pair.name, pair.act, undo, mistake))
    return [*found.values(), *(Pair(f"by hand {n}", *each, "wrong") for n, each in enumerate(BY_HAND))]


def _mutated(pair: Pair, dialect: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    undo = pair.undo
    yield "the action again", pair.act
    if all(" SET " in text and " = '" not in text.partition(" WHERE ")[0] for text in undo):
        yield "the undo twice", (*undo, *undo)
    if len(undo) > 1:
        yield "in the other order", undo[::-1]
        for number in range(len(undo)):
            yield f"without statement {number + 1}", undo[:number] + undo[number + 1 :]
    for number, statement in enumerate(undo):
        tree = sqlglot.parse_one(statement, dialect=dialect)
        for mutate in _MUTATIONS:
            for mistake, new in mutate(tree):
                changed = (*undo[:number], new.sql(dialect=dialect), *undo[number + 1 :])
                yield f"{mistake} ({number + 1})" if len(undo) > 1 else mistake, changed


def in_mariadb(pair: Pair) -> Pair | None:
    """A pair in the words of MariaDB; None if it says something else there."""
    if pair.name == "two that are swapped":  # one is set after the other
        return None
    act, undo = (
        tuple(sqlglot.transpile(text, read="sqlite", write="mysql")[0] for text in some)
        for some in (pair.act, pair.undo)
    )
    return Pair(pair.name, act, undo, pair.mistake)


def _by_hand(act: str, *undos: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(tuple(act.split("; ")), tuple(undo.split("; "))) for undo in undos]


BY_HAND = [
    *_by_hand(
        "DELETE FROM kind WHERE name = 'book'",
        "INSERT INTO kind (name) VALUES ('book')",
        "INSERT INTO kind VALUES ('book', 'none', 0)",
        "INSERT INTO kind (name, note) VALUES ('book', NULL)",
    ),
    *_by_hand(
        "UPDATE item SET price = 0 WHERE id = 3",
        "UPDATE item SET price = 10 WHERE id = 3",
        "UPDATE item SET price = NULL WHERE id = 3",
        "UPDATE item SET price = (SELECT MAX(price) FROM item) WHERE id = 3",
        "UPDATE item SET price = 10 WHERE price = 0",
    ),
    *_by_hand(
        "UPDATE item SET state = 'sold' WHERE kind = 'book'",
        "UPDATE item SET state = 'new' WHERE kind = 'book'",
        "UPDATE item SET state = 'new' WHERE state = 'sold'",
        "UPDATE item SET state = 'gone' WHERE state = 'sold' AND kind = 'book'",
    ),
    *_by_hand(
        "UPDATE item SET is_open = FALSE WHERE kind = 'book'",
        "UPDATE item SET is_open = TRUE WHERE kind = 'book'",
        "UPDATE item SET is_open = NOT is_open WHERE kind = 'book'",
    ),
    *_by_hand(
        "DELETE FROM review WHERE id = 3",
        "INSERT INTO review (id, stars) VALUES (3, 4)",
        "INSERT INTO review (id, item, stars, text) VALUES (3, 1, 4, 'good')",
        "INSERT INTO review (id, stars) SELECT 3, MAX(stars) FROM review HAVING COUNT(*) > 0",
    ),
    *_by_hand(
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO item (id, name) VALUES (3, 'lamp')",
        "INSERT INTO item (id, name, price, kind) VALUES (3, 'lamp', 10, 'book')",
    ),
    *_by_hand(
        "UPDATE place SET shelf = 'B' WHERE shelf = 'A'",
        "UPDATE place SET shelf = 'A' WHERE shelf = 'B'",
        "UPDATE place SET shelf = 'A'",
    ),
    *_by_hand(
        "INSERT INTO note VALUES ('due', 1)",
        "DELETE FROM note WHERE text = 'due' AND number = 1",
        "DELETE FROM note WHERE text = 'due'",
        "DELETE FROM note WHERE number = 1",
        "DELETE FROM note WHERE number IS NULL",
    ),
    *_by_hand(
        "INSERT INTO kind VALUES ('book', 'n', 1) ON CONFLICT (name) DO UPDATE SET rank = 1",
        "DELETE FROM kind WHERE name = 'book'",
        "UPDATE kind SET rank = 0 WHERE name = 'book'",
    ),
    *_by_hand(
        "UPDATE item SET name = UPPER(name)",
        "UPDATE item SET name = LOWER(name)",
    ),
    *_by_hand(
        "UPDATE item SET name = TRIM(name) WHERE price > 10",
        "UPDATE item SET name = name || ' ' WHERE price > 10",
        "UPDATE item SET name = ' ' || name WHERE price > 10",
    ),
    *_by_hand(
        "UPDATE kind SET rank = rank / 2",
        "UPDATE kind SET rank = rank * 2",
        "UPDATE kind SET rank = rank * 2 + 1",
    ),
    *_by_hand(
        "UPDATE pair SET a = COALESCE(a, 0) + 1",
        "UPDATE pair SET a = a - 1",
        "UPDATE pair SET a = NULLIF(a - 1, 0)",
    ),
    *_by_hand(
        "UPDATE item SET price = price + 5 WHERE price < 20",
        "UPDATE item SET price = price - 5 WHERE price < 20",
        "UPDATE item SET price = price - 5 WHERE price < 25",
        "UPDATE item SET price = price - 5 WHERE price < 25 AND price >= 5",
    ),
    *_by_hand(
        "UPDATE review SET item = NULL WHERE item = 3",
        "UPDATE review SET item = 3 WHERE item IS NULL",
        "UPDATE review SET item = 3 WHERE item IS NULL AND stars = 4",
    ),
    *_by_hand(
        "DELETE FROM part WHERE id = 1",
        "INSERT INTO part VALUES (1, NULL, NULL)",
        "INSERT INTO part (id) VALUES (1)",
    ),
    *_by_hand("DELETE FROM stock", "INSERT INTO stock SELECT shelf, row_no, 1, 1 FROM place"),
    *_by_hand("DELETE FROM note WHERE text = 'due'", "INSERT INTO note VALUES ('due', 1)"),
    *_by_hand(
        "UPDATE item SET kind = 'toy' WHERE kind = 'book'",
        "UPDATE item SET kind = 'book' WHERE kind = 'toy'",
        "UPDATE item SET kind = 'book' WHERE kind = 'toy' AND price > 10",
    ),
    *_by_hand(
        "UPDATE pair SET a = a * 0",
        "UPDATE pair SET a = b",
    ),
    *_by_hand(
        "UPDATE part SET whole = NULL WHERE whole = 4",
        "UPDATE part SET whole = 4 WHERE whole IS NULL",
    ),
]
"""Actions without any right undo by statements, or with one that is wrong in a way of its own."""

_ITEM, _PART = "an item of a new kind", "a part with its own"
EQUIVALENT = {
    f"{_ITEM}: in the other order": "the item goes with its kind by the cascade",
    f"{_ITEM}: without statement 1": "the item goes with its kind by the cascade",
    f"{_ITEM}: does nothing (1)": "the item goes with its kind by the cascade",
    f"{_ITEM}: only the first (1)": "the item goes with its kind by the cascade",
    "a place that is noted: in the other order": "deleting a place does nothing to what is noted of it",
    f"{_PART}: in the other order": "part 51 goes with part 50 by the cascade",
    f"{_PART}: without statement 1": "part 51 goes with part 50 by the cascade",
    f"{_PART}: does nothing (1)": "part 51 goes with part 50 by the cascade",
    f"{_PART}: only the first (1)": "part 51 goes with part 50 by the cascade",
    f"{_PART}: 51 -1 (1)": "part 51 goes with part 50 by the cascade",
    f"{_PART}: whole for id in id = 51 (1)": "no part is of part 51, which is new, and it goes with part 50",
    "dearer books: price never below 0": "CHECK (price >= 0) holds before the action",
    "twice the price: price never below 0": "CHECK (price >= 0) holds before the action",
    "thrice, for a state: price never below 0": "CHECK (price >= 0) holds before the action",
    "stars that are turned: stars never below 0": "CHECK (stars BETWEEN 1 AND 5)",
    "one number that is another: the undo twice": "nothing has the number 1003 the second time",
    "states that change places: state in small letters": "CHECK names small letters only",
    "states that change places: state trimmed": "CHECK names no spaces",
    "two tables: in the other order": "the tables have nothing to do with one another",
}
"""Mutants that do what the right undo does, and why. None of them differs in any of 40 worlds either."""
