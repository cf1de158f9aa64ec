"""Packages that generated code may import, from a list with exact versions and hashes.

The list is a requirements file as `uv pip compile --generate-hashes` or `pip-compile` write it. Requested names must be
on it; they are installed into a cache folder without dependencies, which have to be requested as well.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autoclave.core import DataError, HostError, InputError
from autoclave.core.files import alone_with, atomic_folder, existing_file

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)\s*(?:;.*?)?"
    r"(?P<hashes>(?:\s*--hash=sha256:[0-9a-f]{64})+)"
)
_INSTALL_TIMEOUT_S = 600.0


def normalised_name(name: str) -> str:
    """Return the normalised name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


class AllowedPackages:
    """The packages of a requirements file, each with version and hashes; installed into `cache` on demand.

    Raises DataError where a line is not a pinned requirement with a hash, and InputError where the file is missing.
    """

    def __init__(self, path: Path, cache: Path) -> None:
        self.path, self._cache = path, cache
        self._lines: dict[str, str] = {}
        try:
            text = existing_file(path, "packages").read_text(encoding="utf-8").replace("\\\n", " ")
        except UnicodeDecodeError:
            raise DataError(f"{path}: must be UTF-8") from None
        for number, line in enumerate(text.splitlines(), start=1):
            stripped = re.sub(r"(^|\s)#.*", "", line).strip()
            if not stripped:
                continue
            if not (found := _REQUIREMENT.fullmatch(stripped)):
                raise DataError(
                    f"{path}:{number}: must be NAME==VERSION with a --hash=sha256:...; found {stripped[:80]!r}"
                )
            pinned = f"{found['name']}=={found['version']} {' '.join(found['hashes'].split())}"
            self._lines[normalised_name(found["name"])] = pinned

    def install(self, names: Sequence[str]) -> Path:
        """Return the folder with the packages of these names; installed once, atomically.

        Raises InputError where a name is not on the list, and HostError where they cannot be installed.
        """
        for name in names:
            if normalised_name(name) not in self._lines:
                raise InputError(f"package {name!r}: is not on the list of allowed packages, {self.path}")
        lines = sorted({self._lines[normalised_name(name)] for name in names})
        digest = hashlib.sha256("\n".join([*lines, sys.version]).encode()).hexdigest()[:32]
        folder = self._cache / digest
        with alone_with(folder, f"{folder}: another process installs it; try again when it is done"):
            if not folder.is_dir():
                self._install(lines, folder)
        return folder

    def _install(self, lines: Sequence[str], folder: Path) -> None:
        with atomic_folder(folder) as partial:
            wanted = self._cache / f"{folder.name}.txt"
            wanted.write_text("\n".join(lines) + "\n")
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            words += ["--require-hashes", "--only-binary=:all:", "--no-compile", "--target", str(partial)]
            try:
                done = subprocess.run(
                    [*words, "-r", str(wanted)], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise HostError(f"{self.path}: packages were not installed within {_INSTALL_TIMEOUT_S:g} s") from None
            if done.returncode:
                raise HostError(f"{self.path}: packages cannot be installed: {done.stderr.strip()[-600:]}")
