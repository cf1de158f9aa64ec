"""A tree with one of everything, what can be known of it, and sessions on it."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import PROTECTED, Grant
from autoclave.runtime.session import Session


def build_tree(root: Path) -> Path:
    """A tree with one of everything, all of one age."""
    (root / "docs/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a.txt").write_text("first\n")
    (root / "b.txt").write_bytes(b"")
    (root / "docs/c.txt").write_text("c" * 10_000)
    (root / "docs/deep/d.txt").write_text("d")
    (root / "docs/link").symlink_to("../a.txt")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o4750)
    (root / "odd \udcff\nname").write_text("odd")
    os.mkfifo(root / "docs/fifo")
    os.link(root / "a.txt", root / "docs/same as a")
    with (root / "holes").open("wb") as file:
        file.truncate(1 << 20)
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(root / "docs/c.txt", "user.note", b"kept")
    for path in [*root.rglob("*"), root]:
        os.utime(path, ns=(10**18, 10**18 + 123_456_789), follow_symlinks=False)
    return root


def manifest(root: Path) -> dict[str, Any]:
    """All that can be put back, of every thing below a folder and of itself, with the content of files."""
    found: dict[str, Any] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        about = path.lstat()
        content: Any = None
        if stat.S_ISREG(about.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(about.st_mode):
            content = os.readlink(path)
        names = [] if stat.S_ISLNK(about.st_mode) else os.listxattr(path)
        found[str(path.relative_to(root))] = (
            *(
                about.st_mode,
                about.st_uid,
                about.st_gid,
                about.st_mtime_ns,
                about.st_ino,
                about.st_nlink,
                about.st_rdev,
            ),
            *(content, [(name, os.getxattr(path, name)) for name in sorted(names)]),
        )
    return found


def open_on(root: Path, **others: Any) -> Session:
    return granted(open_session(root, root.parent / "state", **others))


ALL = ("files/**", "programs/**", "packages/**", "services/**")


def connect_vault(place: Path, trust: Path) -> None:
    """Connect the vault of a folder to sessions whose state is in it, and certificates."""
    (place / "state").mkdir(mode=0o700, exist_ok=True)
    connections = Connections(vault=VaultPlace(path=str(place / "vault"), key="passphrase"), trust=str(trust))
    save_connections(place / "state", connections)


def granted(session: Session) -> Session:
    """The session, with everything permitted."""
    if not session.permissions.grants():
        names = tuple(f"files/**/{name}/**" for name in PROTECTED)
        session.permissions.grant(Grant(resources=ALL, verbs=("*",), minimum_guarantee=Guarantee.NONE))
        session.permissions.grant(Grant(resources=names, verbs=("*",)))
    return session


def done(session: Session, **operation: Any) -> str:
    proposal = session.propose(operation)
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


def facts_without_times(found: dict[str, Any]) -> dict[str, Any]:
    """Without inodes and the time of what was written: both are new in each run."""
    return {path: (*facts[:3], *facts[5:]) for path, facts in found.items()}


def texts(root: Path) -> dict[str, Any]:
    """Modes and contents alone."""
    return {path: (facts[0], facts[7]) for path, facts in manifest(root).items() if path != "."}


def drawn(draw: random.Random, root: Path, number: int) -> dict[str, Any]:
    """Some operation, on what is there or on something new; not all can be done."""
    there = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    path = draw.choice([*there, f"n{number}", f"docs/n{number}", f"empty/n{number}"])
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {"do": "write", "path": path, "content": f"{number}"},
        lambda: {"do": "append", "path": path, "content": f"{number}"},
        lambda: {"do": "make_folder", "path": f"{path}/m{number}"},
        lambda: {"do": "delete", "path": path, "recursive": draw.random() < 0.3},
        lambda: {"do": "move", "path": path, "to": f"{draw.choice(there or ['x'])}", "replace": True},
        lambda: {"do": "move", "path": path, "to": f"moved{number}"},
        lambda: {"do": "set_mode", "path": path, "mode": draw.choice([0o600, 0o700, 0o755])},
    ]
    return draw.choice(kinds)()
