"""Tables in text files: sections, each a line `[name]` and the lines below it, with a blank line between two."""

from pathlib import Path


def read_sections(path: Path) -> dict[str, list[str]]:
    """Return the lines of each section by its name; an indented line continues the one above."""
    parts = (part.partition("]\n") for part in path.read_text("utf-8")[1:].split("\n\n["))
    return {name: lines.strip().replace("\n    ", " ").splitlines() for name, _, lines in parts}
