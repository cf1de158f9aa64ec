"""Compile a program in a cell of its own: the source goes in, an executable file comes out on standard output.

The content is an order of the judge: `file` and `source` of the program, `commands` to run one after the other in the
scratch folder, their `environment`, and the `result` file that they write. When a command fails, the beginning of its
output goes to standard error, and the exit code is 1.
"""

import json
import os
from typing import Any

_MESSAGES = "messages"
_MESSAGE_BYTES = 1 << 16


def prepare(content: bytes, _place: Any) -> Any:
    return json.loads(content)


def run(test: Any) -> None:
    """Carry out the order and leave the process. Does not return."""
    order = test.program
    with open(order["file"], "wb") as file:
        file.write(order["source"].encode("utf-8", "surrogatepass"))
    for command in order["commands"]:
        if not _is_successful(command, order["environment"]):
            with open(_MESSAGES, "rb") as messages:
                _write(2, messages.read(_MESSAGE_BYTES))
            os._exit(1)
    with open(order["result"], "rb") as result:
        while content := result.read(1 << 16):
            _write(1, content)
    os._exit(0)


def _is_successful(command: "list[str]", environment: "dict[str, str]") -> bool:
    to_file = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    pid = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, _MESSAGES, to_file, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    return os.waitpid(pid, 0)[1] == 0


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
