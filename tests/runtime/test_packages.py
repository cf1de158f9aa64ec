"""Generated code imports what is on a list with hashes, and nothing that a model made up."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from autoclave.core import DataError, HostError, InputError
from autoclave.runtime.opening import open_session
from autoclave.runtime.packages import AllowedPackages
from tests.runtime.trees import granted

_WHEEL = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(folder: Path, name: str = "tidy_names", version: str = "1.0", code: str = "ANSWER = 42\n") -> str:
    """Builds a wheel; its SHA-256."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", _WHEEL)
        archive.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def _wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/wheels")


def listed(tmp_path: Path, text: str) -> AllowedPackages:
    (tmp_path / "allowed.txt").write_text(text)
    return AllowedPackages(tmp_path / "allowed.txt", tmp_path / "cache")


def test_a_package_of_the_list_is_installed_once(tmp_path: Path):
    digest = wheel(tmp_path / "wheels")
    packages = listed(tmp_path, f"# made by hand\nTidy_Names==1.0 \\\n    --hash=sha256:{digest}  # via nothing\n")
    folder = packages.install(["tidy-names"])
    assert (folder / "tidy_names.py").read_text() == "ANSWER = 42\n"
    (tmp_path / "wheels/tidy_names-1.0-py3-none-any.whl").unlink()
    assert packages.install(["TIDY.names"]) == folder


def test_what_is_not_on_the_list_or_not_as_it_says_is_not_installed(tmp_path: Path):
    wheel(tmp_path / "wheels")
    packages = listed(tmp_path, f"tidy-names==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(InputError, match="'tidy-nanes': is not on the list"):
        packages.install(["tidy-nanes"])
    with pytest.raises(HostError, match="cannot be installed"):
        packages.install(["tidy-names"])
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    "line",
    [
        "tidy-names",
        "tidy-names==1.0",
        "tidy-names>=1.0 --hash=sha256:" + "0" * 64,
        "tidy-names==1.0 --hash=md5:" + "0" * 32,
        "tidy-names @ https://example.com/x.whl --hash=sha256:" + "0" * 64,
        "--index-url https://example.com",
        "-e .",
        "tidy-names==1.0 --hash=sha256:" + "0" * 64 + " --global-option=x",
    ],
)
def test_a_line_that_does_not_pin_is_refused(tmp_path: Path, line: str):
    with pytest.raises(DataError, match=r"allowed.txt:1: must be NAME==VERSION"):
        listed(tmp_path, line + "\n")


def test_code_imports_what_it_was_given_and_only_with_a_grant(tmp_path: Path):
    digest = wheel(tmp_path / "wheels")
    packages = listed(tmp_path, f"tidy-names==1.0 --hash=sha256:{digest}\n")
    (tmp_path / "tree").mkdir()
    source = "import tidy_names; print(tidy_names.ANSWER, tidy_names.__file__)"
    with open_session(tmp_path / "tree", tmp_path / "state", packages=packages) as session:
        granted(session)
        proposal = session.propose({"do": "python", "source": source, "packages": ["tidy-names"]})
        assert proposal.plan.output["stdout"] == "42 /packages/tidy_names.py\n"
        with pytest.raises(InputError, match="No module named 'tidy_names'"):
            session.propose({"do": "python", "source": source})
        with pytest.raises(InputError, match="not on the list"):
            session.propose({"do": "python", "source": source, "packages": ["requests"]})
        for grant in session.permissions.grants():
            session.permissions.revoke(grant.id)
        with pytest.raises(InputError, match="not permitted"):
            session.propose({"do": "python", "source": source, "packages": ["tidy-names"]})
    with open_session(tmp_path / "tree", tmp_path / "state") as session, pytest.raises(InputError, match="--packages"):
        granted(session).propose({"do": "python", "source": source, "packages": ["tidy-names"]})
