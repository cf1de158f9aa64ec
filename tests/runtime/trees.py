"""A tree with one of everything, what can be known of it, and sessions on it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from autoclave.runtime.interface import Guarantee
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import PROTECTED, Grant
from autoclave.runtime.session import Session


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
            *(content, [(name, os.getxattr(path, name)) for name in names]),
        )
    return found


def open_on(root: Path) -> Session:
    return granted(open_session(root, root.parent / "state"))


ALL = ("files/**", "programs/**", "packages/**", "services/**")


def granted(session: Session) -> Session:
    """The session, with everything permitted."""
    if not session.grants():
        names = tuple(f"files/**/{name}/**" for name in PROTECTED)
        session.grant(Grant(resources=ALL, verbs=("*",), minimum_guarantee=Guarantee.NONE))
        session.grant(Grant(resources=names, verbs=("*",)))
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
