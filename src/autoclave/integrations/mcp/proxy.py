"""Tools of another MCP server, each call of which is an action with exact undo.

Theory of operation. The other server is started for each call, in the cell of a command: without a network, on an
overlay of the folder (see `runtime.files.commands`). `caller.py` runs there, starts it and calls the tool. What the
server wrote is the plan of the action: grants are checked, and only then it is applied to the folder. So an undo
restores all that a call did, and effects elsewhere are not possible. What a server keeps in memory is lost between
calls.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mcp.types import CallToolResult, ListToolsResult, TextContent
from pydantic import ValidationError

from autoclave.act import Result, Session
from autoclave.act.results import encodable
from autoclave.core import AutoclaveError, InputError, Outcome, UsageError
from autoclave.core.json import first_error, rule_of
from autoclave.workspaces import python_executable

_FOLDER = "/mcp"
"""Folder of the program of a call in the cell; its name is that of the server."""
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")
"""Folders of the host that a cell has anyway."""


class Proxy:
    """The server of `command`, for actions on `root`.

    Args:
        name: of the server in grants (`programs/NAME`) and in the list of actions.
        shown: files and folders of the host that the server needs besides its installation; it sees them read-only.

    Raises UsageError where there is no such program.
    """

    def __init__(self, name: str, command: Sequence[str], root: Path, shown: Sequence[Path] = ()) -> None:
        if not (program := shutil.which(command[0])):
            raise UsageError(f"--in-front-of {command[0]}: there is no such program")
        self._command, self._program = [str(Path(program).absolute()), *command[1:]], f"{_FOLDER}/{name}"
        self._places = dict.fromkeys([*_needed_by(self._command, root.resolve()), *shown])
        source = Path(__file__).with_name("caller.py").read_text(encoding="utf-8")
        self._caller = f"#!{python_executable()} -ISB\n{source}\n\nsys.exit(main({self._command!r}))\n"
        self._expected: type[ListToolsResult | CallToolResult] = ListToolsResult
        self._answer: Any = None

    def settings(self, state: Path) -> dict[str, Any]:
        """Return arguments of `open_session`, for the session that calls the server. `state` is its state folder."""
        shown = ((str(self._place(state)), self._program), *((str(each), str(each)) for each in self._places))
        return {"shown": shown, "on_outcome": self._keep}

    def _place(self, state: Path) -> Path:
        """Return the file of the program, of which other servers and versions have others."""
        return state / "mcp" / hashlib.sha256(self._caller.encode()).hexdigest()[:16]

    def _keep(self, outcome: Outcome) -> None:
        """Keep the response of a call that ended well. If it is invalid, raises InputError, and nothing is applied."""
        if outcome.ended != "exited" or outcome.exit_code:
            return
        try:
            self._answer = self._expected.model_validate_json(outcome.stdout)
        except ValidationError as error:
            first = first_error(error)
            place = ".".join(map(str, first["loc"]))
            raise InputError(
                f"server {Path(self._program).name}: {place}: {rule_of(first['msg'])}; nothing was done"
            ) from None

    def tools(self, session: Session) -> ListToolsResult:
        """Return the tools of the server. Raises UsageError where they cannot be listed."""
        caller = self._place(session.state)
        caller.parent.mkdir(exist_ok=True, mode=0o700)
        partial = caller.with_name(f"{caller.name}.{secrets.token_hex(4)}")
        partial.write_text(self._caller, "utf-8")
        partial.chmod(0o755)
        partial.replace(caller)
        self._expected = ListToolsResult
        try:
            session.plan({"do": "run", "command": [self._program], "stdin": "{}"})
        except AutoclaveError as error:
            hint = getattr(error, "hint", "")
            told = f"{error}{f'. What would permit it: {hint}' if hint else ''}"
            raise UsageError(f"--in-front-of: its tools cannot be listed: {told}") from None
        return self._answer

    def call(self, session: Session, tool: str, arguments: dict[str, Any]) -> tuple[Result, CallToolResult | None]:
        """Call a tool; return the result of the action, and that of the server unless the action failed."""
        self._expected, asked = CallToolResult, json.dumps({"tool": tool, "arguments": arguments})
        result = session.attempt({"do": "run", "command": [self._program, tool], "stdin": asked})
        if result.is_error:
            return result, None
        answer: CallToolResult = self._answer
        changes = "; ".join(result.changes) or "nothing was changed"
        note = TextContent(text=encodable(f"action {result.action}, guarantee {result.guarantee}: {changes}"))
        return result, answer.model_copy(update={"content": [*answer.content, note]})


def _needed_by(command: Sequence[str], root: Path) -> Iterator[Path]:
    """Yield what the words of a command name outside of the folder, with what is installed around it.

    That is the virtual environment with its interpreter, or `node_modules`. A cell has the system and our interpreter.
    """
    ours = Path(python_executable()).resolve()
    for word in command:
        path = Path(word)
        if not path.is_absolute() or not path.exists() or path.is_relative_to(root) or root.is_relative_to(path):
            continue
        for place in dict.fromkeys((path, path.resolve())):
            above = [each for each in place.parents if (each / "pyvenv.cfg").exists() or each.name == "node_modules"]
            found = [above[-1] if above else place]
            if (found[0] / "pyvenv.cfg").exists():
                found.append((found[0] / "bin/python").resolve().parents[1])
            yield from (each for each in found if each != ours and not f"{each}/".startswith(_SYSTEM))
