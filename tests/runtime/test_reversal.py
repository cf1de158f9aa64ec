"""An undo that a model brings is tested and shown; what its action replaced is kept and restored in any case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.session import Session
from tests.runtime.trees import manifest

pytestmark = pytest.mark.usefixtures("sealing_host")


def by_command(line: str, undo: str, **others: Any) -> dict[str, Any]:
    return {"do": "run", "command": ["sh", "-ec", line], "undo": ["sh", "-ec", undo], **others}


EXACT = [
    by_command("mkdir -p new/deep; echo x > new/deep/y", "rm -r new"),
    by_command("chmod 711 empty; : > docs/new", "rm docs/new; chmod 755 empty"),
    by_command("cp -a docs second", "rm -r second"),
    {"do": "python", "source": "open('new', 'w').write('x')", "undo": "import os; os.remove('new')"},
]


@pytest.mark.parametrize("operation", EXACT, ids=str)
def test_an_undo_that_is_exact_is_shown_as_such(root: Path, session: Session, operation: dict[str, Any]):
    before = manifest(root)
    proposal = session.propose(operation)
    assert "its own undo was tested, and restores the tree as the pre-images do" in proposal.plan.changes
    assert manifest(root) == before
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert manifest(root) == before
    assert session.audit() == []


NEVER_ENDS = "while :; do :; done"
HOSTILE = [
    ("echo x > new", "true", "'new' would not be as before"),
    ("echo x > new", "mv new newer", "'newer'"),
    ("echo other > docs/c.txt", "echo something > docs/c.txt", "'docs/c.txt'"),
    ("echo other > docs/c.txt", "rm -rf ./* .[!.]*", "'"),
    ("rm -r docs/deep", "mkdir docs/deep; : > docs/deep/d.txt", "'docs/deep"),  # names alone
    ("echo x > new", "rm new; touch b.txt", "'b.txt'"),  # times
    ("echo x > b.txt", ": > b.txt", "'b.txt'"),  # but for its time, it is as it was
    ("chmod 600 b.txt", "chmod 640 b.txt", "'b.txt'"),
    ("echo x > new", "rm new; ln b.txt second", "'second'"),
    ("ln -sf b.txt docs/link", "rm docs/link; ln -s ../b.txt docs/link", "'docs/link'"),
    ("echo x > new", "false", "exited with 1"),
    ("echo x > new", "kill -9 $$", "signal"),
    ("echo x > new", NEVER_ENDS, "took more than 0.5 s"),
    ("echo x > new", "echo undone; exit 0", "'new'"),  # what it prints decides nothing
    ("true", "true", "the action changes nothing here"),
]


@pytest.mark.parametrize(("line", "undo", "why"), HOSTILE)
def test_an_undo_that_is_not_exact_is_ignored_with_a_warning_and_all_comes_back(
    root: Path, session: Session, line: str, undo: str, why: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("autoclave.runtime.files.commands._UNDO_TEST_S", 0.5 if undo == NEVER_ENDS else 10.0)
    before = manifest(root)
    proposal = session.propose(by_command(line, undo))
    assert proposal.plan.guarantee is Guarantee.EXACT
    (warning,) = [each for each in proposal.plan.changes if each.startswith("warning: its own undo is ignored: ")]
    assert why in warning
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert manifest(root) == before
