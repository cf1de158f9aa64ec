"""Start the code of `guest/` in a bare interpreter.

Its modules are executed from their text under neutral names, so that a program does not learn from its call stack
where on the host we are installed.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "guest"
"""The working directory that the command needs."""

_MODULES = ("linux", "filter", "enter", "process", "init", "zygote", "probe")  # in order of import
_START = f"""
import sys, types
package = sys.modules["guest"] = types.ModuleType("guest")
package.__path__ = []
for name in {_MODULES}:
    module = sys.modules["guest." + name] = types.ModuleType("guest." + name)
    module.__package__ = "guest"
    with open(name + ".py", encoding="utf-8") as file:
        exec(compile(file.read(), "<guest " + name + ">", "exec", dont_inherit=True), module.__dict__)
    setattr(package, name, module)
getattr(package, sys.argv[1]).main(*sys.argv[2:])
"""


def guest_command(executable: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs `main(*arguments)` of a guest module, without site-packages or user settings."""
    return [executable, "-S", "-s", "-P", "-c", _START, module, *arguments]
