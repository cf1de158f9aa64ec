"""Files with the settings of other frameworks, by dotted name: YAML, JSON, TOML, and command lines."""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from autoclave.config.recipe import parse_yaml
from autoclave.core.errors import ConfigError
from autoclave.core.files import existing_file
from autoclave.core.json import leaves

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(?!\()(\"[^\"]*\"|'[^']*'|[^\s;]*)\s*;?\s*$")
_ARRAY = re.compile(r"^(\s*\w+\+?=\()(.*?)\)?\s*$")
_END = re.compile(r"[|&;<>()].*|\d>.*|\$[@*]|\$\{[\w@]+(\[[@*]\]|:\d+)\}")
"""A word of the shell that is no value of an option: an operator, or all words of an array."""
_REFERENCE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.Div: int.__floordiv__,
}
_ARITHMETIC = re.compile(r"\$\(\(([^$]*?)\)\)")
_OVERRIDE = re.compile(r"^[+~]*([A-Za-z_][\w@/-]*(?:\.[\w@/-]+)+)=(.*)$", re.DOTALL)
_INTERPOLATION = re.compile(r"\$\{(?:oc\.select:)?\s*([\w.]+)\s*(?:,\s*(.*))?\}", re.DOTALL)


def read_foreign(path: Path) -> dict[str, Any]:
    """Return the settings in a file of another framework, by dotted name.

    Raises InputError: the file is missing. ConfigError: it is not text, or not of the format that its name or content
    promises.
    """
    try:
        text = existing_file(path, "file of settings").read_bytes().decode("utf-8-sig")
        return _resolved(dict(leaves(_parse(path.suffix.lower(), text))))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: settings cannot be read ({' '.join(str(error).split())[:160]})") from None


def _parse(suffix: str, text: str) -> Mapping[str, Any]:
    if suffix == ".toml":
        found: Any = tomllib.loads(text)
    elif suffix == ".json":
        found = json.loads(text)
    elif suffix in (".yaml", ".yml"):
        found = parse_yaml(text)
    else:
        return _command_line(text)
    if isinstance(found, list) and all(isinstance(word, str) for word in cast("list[Any]", found)):
        return dict(_arguments(cast("list[str]", found)))
    if not isinstance(found, dict) or not found:
        raise ValueError("it has no settings; a mapping of names to values is expected")
    return cast("dict[str, Any]", found)


def _command_line(text: str) -> dict[str, Any]:
    """Return the options and overrides of a script, with the variables that it sets itself put in."""
    variables: dict[str, str] = {}
    lines: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        line = _substituted(line, variables)
        if assignment := _ASSIGNMENT.match(line):
            variables[assignment[1]] = assignment[2].strip("\"'")
        else:
            lines.append(_ARRAY.sub(r"( \2 )", line))
    found = dict(_arguments(shlex.split("\n".join(lines), comments=True)))
    if not found:
        raise ValueError(
            "no option --name value and no override a.b=value; name the file .yaml, .json or .toml if it is one"
        )
    return found


def _substituted(line: str, variables: Mapping[str, str]) -> str:
    line = _REFERENCE.sub(lambda found: variables.get(found[1] or found[3], found[2] or found[0]), line)
    return _ARITHMETIC.sub(lambda found: _calculated(found[1], variables), line)


def _calculated(text: str, variables: Mapping[str, str]) -> str:
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Name) and variables.get(node.id, "").isdigit():
            return int(variables[node.id])
        if isinstance(node, ast.BinOp) and (operation := _OPERATIONS.get(type(node.op))):
            return operation(value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise SyntaxError

    try:
        return str(value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ZeroDivisionError):
        raise ValueError(f"$(({text})) is not a calculation with numbers of the script") from None


def _arguments(words: list[str]) -> Iterator[tuple[str, Any]]:
    name, values = "", list[str]()
    for word in [*words, "--"]:
        override = _OVERRIDE.match(word)
        if word.startswith("--") or override or _END.fullmatch(word):
            if name:
                yield name, [_plain(each) for each in values] if len(values) > 1 else _plain(*values or ["true"])
            name, equals, value = word.removeprefix("--").partition("=") if word.startswith("--") else ("", "", "")
            values = [value] if equals else []
        elif name:
            values.append(word)
        if override and not word.startswith("--"):
            yield override[1], _plain(override[2])


def _plain(text: str) -> Any:
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def _resolved(found: dict[str, Any]) -> dict[str, Any]:
    """Put in what `${a.b}` and `${oc.select:a.b,default}` stand for, where the file says it."""
    for _ in range(4):  # references to references
        for name, value in found.items():
            if isinstance(value, str) and (match := _INTERPOLATION.fullmatch(value.strip())):
                if match[1] in found:
                    found[name] = found[match[1]]
                elif match[2] is not None:
                    found[name] = _plain(match[2])
    return {name: None if value in ("None", "null") else value for name, value in found.items()}
