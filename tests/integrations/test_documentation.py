"""The examples of docs/how-to/integrations.md run as they stand, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "integrations.md"
# A fence inside of an example stands in a line with other text.
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
NEEDED = {"TRL": "trl", "Inspect": "inspect_ai"}


def test_every_framework_has_an_example():
    assert list(EXAMPLES) == ["Plain Python", "TRL", "verl", "Inspect"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_the_documented_output(name: str, tmp_path: Path):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")
    done = subprocess.run([sys.executable, "-c", EXAMPLES[name]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    if said := re.search(r"^print\(.*\)  # (.*)$", EXAMPLES[name], re.M):
        assert done.stdout.strip().splitlines()[-1] == said[1]
