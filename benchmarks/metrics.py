"""Render `docs/reference/metrics.yaml`, the metrics of a run, into `metrics.md` beside it. Not a benchmark.

python -m benchmarks.metrics            fail if the page differs from the data
python -m benchmarks.metrics --write    render the page
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.yaml"
PAGE = DATA.with_suffix(".md")
NOT_METRICS = {"kind", "step", "time", "split"}
_BLOCK = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- /metrics -->)", re.DOTALL)


def read() -> dict[str, list[list[str]]]:
    """Return name, unit, estimator and meaning of each metric, by section."""
    return yaml.safe_load(DATA.read_text(encoding="utf-8"))


def undocumented(metrics: Path) -> set[str]:
    """Return the names in a `metrics.jsonl` that the page lacks."""
    names = [re.escape(name) for section in read().values() for name, *_ in section]
    known = re.compile("|".join(re.sub("<[^>]+>", "[^/]+", name) for name in names))
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines() if line]
    measured = [line for line in lines if re.match("train|evaluation|sft", line["kind"])]
    return {name for line in measured for name in line if not known.fullmatch(name)} - NOT_METRICS


def rendered(page: str) -> str:
    """Return the page with its block as the data has it."""
    parts = [f"## {title}\n\n{_table(rows)}\n" for title, rows in read().items()]
    return _BLOCK.sub(lambda _: "\n".join(parts), page)


def _table(rows: list[list[str]]) -> str:
    cells = [["metric", "unit", "estimator", "meaning"], ["---"] * 4]
    cells += [[f"`{name}`", *(text.replace("|", "\\|") for text in rest)] for name, *rest in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        PAGE.write_text(rendered(page), encoding="utf-8")
    elif page != rendered(page):
        print(f"{PAGE}: differs from {DATA.name}. Fix: python -m benchmarks.metrics --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
