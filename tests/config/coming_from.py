"""The tables of `docs/how-to/coming-from.md`. `python -m tests.config.coming_from` writes them into the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from autoclave.config.frameworks import frameworks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"
BEGIN, END = "<!-- table -->\n", "<!-- /table -->\n"


def tables() -> str:
    return "".join(f"{line}\n" for name in frameworks() for line in _table(name))


def _table(name: str) -> Iterator[str]:
    framework = frameworks()[name]
    yield f"### {framework.title}"
    yield ""
    yield "| their setting | Autoclave | their default | difference |"
    yield "| --- | --- | --- | --- |"
    base = frameworks()["trl"].settings if name == "trl-rloo" else {}
    for theirs, row in framework.settings.items():
        if base.get(theirs) == row:
            continue
        ours = ", ".join(f"`{path}`" for path in (row.ours, row.too) if path)
        unit = f" ({row.unit})" if row.unit else ""
        default = "" if row.default is None else f"`{json.dumps(row.default)}`"
        yield f"| `{theirs}` | {ours}{unit} | {default} | {row.note} |"
    if base:
        yield ""
        yield "The rest is as for `GRPOConfig`."
    yield ""


def written(page: str) -> str:
    """The page with the tables of the data."""
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    return f"{before}{BEGIN}\n{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
