"""A model tidies a folder; a person looks at what it did, and takes back what was wrong.

    python examples/acting/tidy_folder.py                                   # proposals that were recorded
    python examples/acting/tidy_folder.py --endpoint URL --model NAME       # those of a model, at any OpenAI server

Works on a folder that it makes, and removes it at the end. Needs the extra `runtime` for a model.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proposing import have_proposed, in_a_line, options_of

from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Grant
from autoclave.runtime.session import Session

TASK = "Move the photos of 2024 from inbox to photos/2024 with names in small letters, note it in notes.txt, clean up."


def main() -> None:
    options = options_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "home"
        fill(root)
        before = listing(root)
        with open_session(root) as session:
            session.permissions.grant(Grant(resources=("files/**", "programs/*"), verbs=("*",), max_files=50))
            changing = ("create", "modify", "delete", "rename", "set_mode")
            session.permissions.grant(Grant(effect="forbid", resources=("files/taxes/**",), verbs=changing))
            session.savepoint("before tidying")
            have_proposed(session, options, TASK, recorded())
            review(session)
            undone = session.undo_to("before tidying")
            print(f"\ntaken back: all that stood ({len(undone)} actions)")
            print(f"the folder is as it was: {listing(root) == before}")
            print(f"the journal is as it was written: {not session.audit()}")


def fill(root: Path) -> None:
    """A folder as people have them."""
    for name in ("inbox", "drafts", "taxes"):
        (root / name).mkdir(parents=True)
    for name in ("IMG-2024-07-01.jpg", "IMG-2024-07-02.jpg", "IMG-2019-01-01.jpg"):
        (root / "inbox" / name).write_bytes(os.urandom(2000))
    (root / "drafts/novel.txt").write_text("It was a dark and stormy night.\n")
    (root / "taxes/2023.txt").write_text("secret\n")
    (root / "notes.txt").write_text("Milk.\n")


def recorded() -> Iterator[dict[str, object]]:
    """What a model proposed for this task once."""
    with Path(__file__).with_name("proposals.jsonl").open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def review(session: Session) -> None:
    """Undo the last action that removed something, which was not requested; the rest stays."""
    for standing in reversed(session.journal.standings()):
        changes = session.difference(standing.action)
        if any("drafts" in line for line in changes):
            print(f"\n{standing.action} went too far:", *changes, sep="\n    ")
            session.undo(standing.action, dependents=True)
            print("taken back; the others stand")
            return


def listing(root: Path) -> list[tuple[str, int, bytes]]:
    """All that is there."""
    paths = sorted(root.rglob("*"))
    return [
        (str(path.relative_to(root)), path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in paths
    ]


if __name__ == "__main__":
    in_a_line(main)
