"""Names that a package imports from its modules when they are first requested, so that commands start quickly.

The package imports them as themselves (`from m import A as A`) for type checkers, `if TYPE_CHECKING`, and then has
`__getattr__ = lazily(__name__)`, which reads those lines.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any


def lazily(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package. Sets its `__all__`: all names that it imports as themselves."""
    module = sys.modules[package]
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    places = {alias.asname: node.module or "" for node in imports for alias in node.names if alias.asname}
    vars(module)["__all__"] = sorted(places)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(module, name, value)
        return value

    return load
