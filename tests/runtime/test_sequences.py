"""Any sequence of acts, undos and redos, with others in between: a tree is as it was before, or it is said not to be.

"As it was" is the whole manifest: kind, content, mode, owner, time, extended attributes, links, holes, inode; of what
comes out of Git all but the inode.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.footprints import meet
from autoclave.runtime.interface import Choice, NotUndone
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.trees import build_tree, done, drawn, manifest, open_on

_MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is one: thousands of sequences wait for no disk."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as place:
        yield Path(place)


def standing(session: Session) -> list[str]:
    return [each.action for each in session.actions.standing_order()]


def undone_names(session: Session) -> list[str]:
    return [each.action for each in session.journal.standings((ActionState.UNDONE,))]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("seeds", "share"),
    [
        (range(80), 0.0),
        (range(5), 0.4),
        pytest.param(range(80, 10_080), 0.0, marks=pytest.mark.soak),
        pytest.param(range(5, 505), 0.4, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_what_is_taken_back_is_as_it_was(place: Path, seeds: range, share: float, request):
    """`share`: of the acts so many are commands."""
    if share:
        request.getfixturevalue("sealing_host")
    num_acts = num_undos = num_redos = 0
    for seed in seeds:
        draw = random.Random(seed)
        root = build_tree(place / "s/tree")
        before = manifest(root)
        with open_on(root) as session:
            for number in range(draw.randint(1, 9)):
                kind = draw.random()
                unchanged = manifest(root)
                try:
                    if kind < 0.6:
                        is_command = draw.random() < share
                        operation = drawn_command(draw, number) if is_command else drawn(draw, root, number)
                        action = done(session, **operation)
                        num_acts += 1
                        if draw.random() < 0.3:
                            session.undo(action)
                            assert manifest(root) == unchanged, seed
                            num_undos += 1
                    elif kind < 0.8 and standing(session):
                        num_undos += len(session.undo(draw.choice(standing(session)), dependents=True))
                    elif undone_names(session):
                        session.redo(draw.choice(undone_names(session)))
                        num_redos += 1
                except InputError:
                    assert manifest(root) == unchanged, seed
            for action in standing(session)[::-1]:
                session.undo(action)
                num_undos += 1
            assert manifest(root) == before, seed
            assert session.audit() == []
        shutil.rmtree(place / "s")
    assert num_acts > len(seeds) // 2
    assert num_undos >= num_acts // 2
    assert num_redos > len(seeds) // 16


def drawn_command(draw: random.Random, number: int) -> dict[str, Any]:
    """Some command, over all or a part of the tree; not all succeed."""
    line = draw.choice(_LINES).format(
        number=number, path=draw.choice(["a.txt", "docs/c.txt", "docs", "run.sh", "holes"])
    )
    within = draw.choice(["", "", "docs", "empty"])
    undo = draw.choice([None, None, "true", "rm -rf ./*", "echo {number} > {path}", "chmod 700 *", "touch {path}"])
    brought = {"undo": ["sh", "-c", undo.format(number=number, path="a.txt")]} if undo else {}
    return {"do": "run", "command": ["sh", "-ec", line], "within": within, **brought}


_LINES = [
    "echo {number} > new{number}; echo {number} >> {path}",
    "rm -rf {path}",
    "mkdir -p m{number}/x; ln {path} m{number}/x/hard; ln -s hard m{number}/x/link",
    "for f in *; do mv $f z$f; done",
    "chmod 700 {path}; touch -d 2001-02-03 {path}; chmod 711 .",
    "cp -a {path} copy{number}; rm -r {path}; mv copy{number} {path}",
    "mkfifo fifo{number}; : > {path}",
]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 5060), marks=pytest.mark.soak)], ids=len)
def test_what_others_did_is_never_lost_and_all_else_is_as_it_was(place: Path, seeds: range):
    num_refused = num_settled = 0
    for seed in seeds:
        draw = random.Random(seed)
        root = build_tree(place / "s/tree")
        before = manifest(root)
        touched: set[str] = set()
        theirs: list[bytes] = []
        with open_on(root) as session:
            for number in range(draw.randint(2, 7)):
                try:
                    done(session, **drawn(draw, root, number))
                except InputError:
                    continue
                if draw.random() < 0.3:
                    touched.add(meddled(draw, root, number, theirs))
            written = [session.actions.receipt(action)["writes"] for action in standing(session)]
            is_whole = True
            for action in standing(session)[::-1]:
                unchanged = manifest(root)
                try:
                    session.undo(action)
                except InputError:
                    num_refused += 1
                    assert manifest(root) == unchanged, seed
                    choice = draw.choice([Choice.SKIP, Choice.FORCE, Choice.SAVE_ASIDE])
                    try:
                        session.undo(action, dependents=True, on_conflict=choice)
                        num_settled += 1
                    except InputError as error:  # what it would have to move back is gone; or all of it was to stay
                        num_settled += isinstance(error, NotUndone)
                        is_whole = False
                    is_whole = is_whole and choice is not Choice.SKIP
            assert session.journal.standings((ActionState.IN_DOUBT, ActionState.UNDO_IN_DOUBT)) == [], seed
        kept = [path.read_bytes() for path in (place / "s").rglob("*") if path.is_file() and not path.is_symlink()]
        for content in theirs:
            assert any(content in each for each in kept), (seed, content)
        if is_whole and not touched:
            assert manifest(root) == before, seed
        elif is_whole:
            disturbed = set(touched)
            for keys in reversed(written):  # theirs goes where an action had its own from, and from there further back
                paths = {key.removeprefix("files/") for key in keys}
                disturbed |= paths if meet(disturbed, paths) else set()
            disturbed |= {path for path, facts in before.items() if f"inodes/{facts[4]}" in disturbed}
            near = {str(parent) for path in disturbed for parent in (Path(path), *Path(path).parents)}
            after = manifest(root)
            for path, facts in before.items():
                if path not in near and not any(path.startswith(f"{each}/") for each in disturbed):
                    assert path in after, (seed, path)
                    assert same_but_for_links(after[path], facts), (seed, path)
        shutil.rmtree(place / "s")
    assert num_refused > len(seeds) // 30
    assert num_settled > len(seeds) // 60


def meddled(draw: random.Random, root: Path, number: int, theirs: list[bytes]) -> str:
    """Somebody else writes a file or replaces one; its path. Their contents are those in `theirs` from then on."""
    content = f"theirs {number} {draw.random()}".encode()
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    path = draw.choice([*files, root / f"theirs{number}"])
    if path.exists():
        old = path.read_bytes()
        theirs[:] = [each for each in theirs if each not in old]
        path.unlink()  # as editors do: another file of that name
    path.write_bytes(content)
    theirs.append(content)
    return str(path.relative_to(root))


def same_but_for_links(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Others who replace a name of a hard-linked file change how many names the rest has; folders, their times."""
    at = (0, 1, 2, 4, 6, 7, 8)
    return [one[each] for each in at] == [other[each] for each in at]
