"""The examples of docs/how-to/act-agents.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autoclave.act import functions

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "act-agents.md").read_text(encoding="utf-8")


def test_the_python_examples_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(functions, "_KNOWN", {})
    (tmp_path / "project").mkdir()
    sources = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for source in sources:
        exec(compile(source, "act-agents.md", "exec"), {"__name__": "page"})
    printed = capsys.readouterr().out
    assert """exact ("create 'notes.txt'",) False""" in printed
    assert "\nas prepared\n" in printed
    assert printed.endswith("compensating\n")
    assert list((tmp_path / "project").iterdir()) == []
