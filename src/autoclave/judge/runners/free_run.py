"""Run a program as `script` does, with files; afterwards report files and the value of its last expression.

One frame comes in, `{"files": {path: bytes}, "fetch": [path], "wants_value": bool, "limit": bytes}`, and one goes out,
`{"value": text or None, "value_length": int, "files": {path: bytes}}`. A program that exits the
process itself sends nothing. The program can forge all of it.

The texts of `plain_data`, `frames`, `python_program`, `failure` and `script` stand before this text, whose `run`
replaces that of `script`.
"""

import ast
import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import decode, encode
    from autoclave.judge.runners.frames import receive_frame, send_frame
    from autoclave.judge.runners.python_program import PROGRAM_FILE
    from autoclave.judge.runners.script import _execute, _wind_down  # pyright: ignore[reportPrivateUsage]

_VALUE = ".value"  # no program can write such a name
_VALUE_CHARS = 10_000


def run(test: Any) -> None:
    """Run the program, report what the order requests, and leave the process. Does not return."""
    order = receive_order()
    write_files(order["files"])
    if order["wants_value"]:
        test.program.code = with_value_kept(test.program.source, PROGRAM_FILE)
    code = _execute(test)
    namespace = test.main.__dict__
    value = text_of(namespace.pop(_VALUE)) if _VALUE in namespace else None
    code = _wind_down(test, code)
    report_results(
        {
            "value": None if value is None else value[:_VALUE_CHARS],
            "value_length": len(value or ""),
            "files": read_files(order["fetch"], order["limit"]),
        }
    )
    os._exit(code)


def with_value_kept(source: str, file: str) -> Any:
    """Compile the source; the value of a last statement that is an expression gets a name."""
    tree = ast.parse(source, file)
    last: Any = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.copy_location(ast.Assign([ast.Name(_VALUE, ast.Store())], last.value), last)
        ast.fix_missing_locations(tree)
    return compile(tree, file, "exec", dont_inherit=True)


def text_of(value: Any) -> "str | None":
    """Return the repr of the value; None if it raises."""
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001  a class of the program's own
        return None


def write_files(files: "dict[str, bytes]") -> None:
    """Write files into the scratch folder. The judge has validated their paths."""
    for path, content in files.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def read_files(paths: "list[str]", limit: int) -> "dict[str, bytes]":
    """Return the content of those that are ordinary files, as long as all together are within the limit."""
    found: dict[str, bytes] = {}
    for path in paths:
        try:
            about = os.stat(path)
            if not stat.S_ISREG(about.st_mode) or about.st_size > limit:
                continue
            with open(path, "rb") as file:
                content = file.read(limit + 1)
        except (OSError, ValueError):
            continue
        if len(content) <= limit:
            found[path] = content
            limit -= len(content)
    return found


def receive_order() -> Any:
    return decode(receive_frame())


def report_results(account: Any) -> None:
    """Send the answer; a program may have closed the channel."""
    with contextlib.suppress(OSError):
        send_frame(encode(account))
