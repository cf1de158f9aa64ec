"""The notebook runs from its first cell to its last, and is stored without what it printed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Jupyter
def test_the_notebook_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    book = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = ["".join(each.get("text", "") for each in cell.get("outputs", ())) for cell in book.cells]
    judged, trained, rewards, rollouts, undone = [text for text in printed if text and "solutions" not in text]
    assert [line.split("reward ")[1] for line in judged.splitlines()] == ["1.0", "0.0", "0.0", "0.0"]
    assert "step   10  held-out pass@1" in trained
    means = [float(line.split()[4]) for line in rewards.splitlines()]
    assert len(means) == 10
    assert sum(means[-3:]) > sum(means[:3])
    assert [line.endswith("accepted") for line in rollouts.splitlines()] == [False] * 3 + [True] * 3
    assert [line.split()[1] for line in undone.splitlines()] == ["True", "True", "kept"]


def test_the_notebook_is_stored_without_outputs():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
