"""Recipes: where they are, and YAML to plain dicts, lists, text and numbers; the only place that reads or writes YAML.

Stricter than PyYAML where its habits hide mistakes: a key given twice, a key that is not text, a value that is no plain
value or contains itself are errors. 3e-4 is a number, and a date stays the text that it is.
"""

import json
import re
from pathlib import Path
from typing import Any, cast

import yaml

from autoclave.config.base import Tree
from autoclave.core.errors import ConfigError, InputError
from autoclave.core.files import existing_file
from autoclave.core.json import nearest, shown

_TEXT = "tag:yaml.org,2002:str"
_FLOAT = "tag:yaml.org,2002:float"
_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBER = re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in (_TEXT, _MERGE):
                name = key.value if isinstance(key, yaml.ScalarNode) else "a list or block"
                raise yaml.MarkedYAMLError(problem=f"{name} as a key: keys are text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{shown(key.value)} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return node


class _Dumper(yaml.SafeDumper):
    pass


for _side in cast(
    "tuple[Any, ...]", (_Loader, _Dumper)
):  # what one writes without quotes, the other reads as the same value
    _side.add_implicit_resolver(_FLOAT, _NUMBER, list("-+0123456789."))
    _side.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _side.yaml_implicit_resolvers.items()
    }


def parse_yaml(text: str) -> Any:
    """The plain value in `text`.

    Raises ValueError: not YAML, or not a plain value; the message is one line, with the line number if it is known.
    """
    try:
        value: Any = yaml.load(text, Loader=_Loader)
        return json.loads(json.dumps(value))  # aliases become copies; what is not plain data shows itself
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{_one_line(error.problem or error.context or 'not valid YAML')}") from None
    except yaml.YAMLError as error:
        raise ValueError(_one_line(str(error))) from None
    except RecursionError:
        raise ValueError("nested too deeply, or contains itself") from None
    except ValueError as error:  # contains itself, or an integer with more digits than Python reads
        raise ValueError(str(error).partition(";")[0]) from None
    except TypeError as error:
        raise ValueError(f"not a plain value ({error})") from None


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with Autoclave, by name. A wheel has them in the package, a checkout at its root."""
    package = Path(__file__).parents[1]
    folder = package / "recipes"
    if not folder.is_dir():
        folder = package.parents[1] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)}


def find_recipe(given: str) -> Path:
    """Return the path of a recipe: a file, or the name of a shipped one (also as recipes/NAME.yaml).

    Raises InputError: a name that no file and no shipped recipe has.
    """
    shipped, name = shipped_recipes(), given.removeprefix("recipes/").removesuffix(".yaml")
    path = Path(given)
    if name in shipped and not path.is_file():
        return shipped[name]
    if not path.exists() and not {".", "/"} & set(given):
        raise InputError(f"recipe {given}: no such file, and no recipe of Autoclave; {nearest(name, list(shipped))}")
    return path


def read_recipe(path: Path) -> Tree:
    """The settings of a recipe; an empty file has none.

    Raises InputError: the file is missing. ConfigError: not YAML, or not a mapping.
    """
    content = existing_file(path, "recipe").read_bytes()
    try:
        tree = parse_yaml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a recipe ({error})") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a recipe is a mapping of settings, found {shown(tree)}")
    return cast("Tree", tree)


def write_yaml(value: Tree) -> str:
    """`value` as YAML that `parse_yaml` reads back, in the given order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160]
