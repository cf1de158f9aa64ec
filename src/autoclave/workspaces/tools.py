"""The tools of a workspace, as a policy sees them."""

from autoclave.workspaces.interface import Tool

_TYPES = {"first_line": "integer", "num_lines": "integer"}


def _tool(name: str, description: str, required: str, optional: str = "") -> Tool:
    properties = {key: {"type": _TYPES.get(key, "string")} for key in f"{required} {optional}".split()}
    schema = {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
    return Tool(name, description, schema)


TOOLS = (
    _tool("shell", "Run a shell command. Each starts in the same folder; files stay.", "command"),
    _tool("python", "Run Python in a session that keeps its variables. Prints the value of a last expression.", "code"),
    _tool(
        "read_file", "Print a file, or `num_lines` lines of it from `first_line` on.", "path", "first_line num_lines"
    ),
    _tool("write_file", "Write a file; its folders are made.", "path content"),
    _tool("edit_file", "Replace the text `old`, which must occur exactly once in a file, by `new`.", "path old new"),
    _tool("search", "Print lines of files that match a pattern of `grep -E`, with path and number.", "pattern", "path"),
    _tool("run_tests", "Run the public tests.", ""),
)
