"""Names that a package imports from its modules when they are first requested, so that commands start quickly.

The package imports them as themselves (`from m import A as A`) for type checkers, `if TYPE_CHECKING`, and then has
`__getattr__ = lazily(__name__)`, which reads those lines.
"""

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

_IMPORT = re.compile(r"from (\S+) import \(?\s*(\w+) as \2\b")


def lazily(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package. Sets its `__all__`: all names that it imports as themselves."""
    module = sys.modules[package]
    with open(module.__file__ or "", encoding="utf-8") as source:
        places = {name: place for place, name in _IMPORT.findall(source.read())}
    vars(module)["__all__"] = sorted(places)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(module, name, value)
        return value

    return load
