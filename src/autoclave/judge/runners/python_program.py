"""Python source as a program: decoded and compiled once, in the first process of the cell.

The text of this module stands before the text of the runners that use it.
"""

import re
import types
from typing import Any

PROGRAM_FILE = "program.py"
_FINALIZERS = re.compile(
    r"__del__|weakref|yield|async|open|buffered|textio|fileio|thread|concurrent|multiprocessing", re.IGNORECASE
)


class PythonProgram:
    """Source text and what it compiles to. `has_finalizers` is whether its end may run code of its own."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.code: types.CodeType = compile(source, PROGRAM_FILE, "exec", dont_inherit=True)
        self.has_finalizers = bool(_FINALIZERS.search(source))


def prepare(content: bytes, _place: Any) -> PythonProgram:
    """The program; raises what `compile` raises."""
    return PythonProgram(content.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))
