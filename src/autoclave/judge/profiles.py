"""The interpreters that problems ask for by name, and the runners that drive a program in its cell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autoclave.sandbox import Profile, Runner

_LCB_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
_STARRED = (*_LCB_MODULES, "builtins", "typing")
_DEEP = 50_000

PROFILES: Mapping[str, Profile] = {
    "lcb": Profile(
        name="lcb",
        # The order matters: `open` and `pow` end up as builtins, `copy`, `datetime` and `random` as modules.
        preamble="\n".join(
            [f"from {name} import *" for name in _STARRED]
            + [f"import {name}" for name in _LCB_MODULES]
            + [f"sys.setrecursionlimit({_DEEP})"]
        ),
        modules=_STARRED,
        recursion_limit=_DEEP,
        int_max_str_digits=_DEEP,
    ),
    "plain": Profile(name="plain", modules=("sys",)),
}
"""`lcb`: names and limits that LiveCodeBench gives a program; `plain`: Python as it comes."""

_HERE = Path(__file__).parent


def _runner(name: str, *modules: str) -> Runner:
    """A runner from the texts of modules, in this order."""
    return Runner(name, "\n".join((_HERE / f"{module}.py").read_text(encoding="utf-8") for module in modules))


SCRIPT = _runner("script", "runners/failure", "runners/script")
"""Runs a program as a script, with real standard streams."""

CALL_SERVER = _runner("call_server", "plain_data", "runners/failure", "runners/call_server")
"""Calls one function of the program; arguments and result travel as plain data."""
