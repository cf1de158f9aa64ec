"""The account of an exception, for messages: the limit behind it, its type, and the line of the program.

`LIMIT_OF_ERRNO` and the text of `python_program` stand before this text, and this text before the text of the runners
that use it.
"""

import errno
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoclave.core.outcome import LIMIT_OF_ERRNO
    from autoclave.judge.runners.python_program import PROGRAM_FILE

_NAME_LENGTH = 100


def account_of(error: BaseException) -> str:
    """Return `<limit or -> <exception> <line>`, and the missing module if any; line 0 is outside of the program."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == PROGRAM_FILE]
    missing = f" {error.name}"[:_NAME_LENGTH] if isinstance(error, ModuleNotFoundError) else ""
    return f"{_limit_behind(error)} {type(error).__name__} {lines[-1] if lines else 0}{missing}"


def _limit_behind(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else 0
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        number = errno.EAGAIN
    return LIMIT_OF_ERRNO.get(number or 0, "-")
