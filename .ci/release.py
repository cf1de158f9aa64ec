"""The two ends of `make release`: refuse what cannot be released, and complete what was built. Nothing is uploaded.

python .ci/release.py ready       exit with 1 if the tree or CHANGELOG.md is not ready
python .ci/release.py finish      add site, notes, images and SHA256SUMS to dist/
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path.cwd()
DIST = ROOT / "dist"
IMAGES = {"autoclave-judge": "Containerfile", "autoclave-train": "Containerfile.train"}


def version() -> str:
    """Return the version, which `src/autoclave/__init__.py` alone has."""
    return re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/autoclave/__init__.py").read_text(), re.MULTILINE)[0]


def section(changelog: str, wanted: str) -> str:
    """Return what the changelog says of a version; empty if nothing."""
    found = re.search(rf"^## \[{re.escape(wanted)}\].*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def refusals() -> list[str]:
    """Return why this tree cannot be released."""
    found: list[str] = []
    if changed := output("git", "status", "--porcelain"):
        found.append(f"the tree has changes that are not committed. Fix: commit or remove them\n{changed}")
    if not section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version()):
        fix = f"Fix: write `## [{version()}] - DATE` above what is released, or set __version__"
        found.append(f"CHANGELOG.md: no section for {version()}. {fix}")
    return found


def finish() -> None:
    """Add to dist/ what the wheels and the source lack: site, notes, images, sums."""
    name = f"autoclave-{version()}"
    shutil.make_archive(str(DIST / f"{name}-docs"), "gztar", ROOT / "site")
    changes = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version())
    (DIST / f"{name}-notes.md").write_text(changes + "\n", encoding="utf-8")
    engine = next((each for each in ("podman", "docker") if shutil.which(each)), "")
    try:
        images = [f"{each}:{version()} {built(engine, each, file)}\n" for each, file in IMAGES.items() if engine]
        (DIST / f"{name}-images.txt").write_text("".join(images))
    except subprocess.CalledProcessError as error:
        print(f"No images: {(error.stderr.strip().splitlines() or ['the engine says nothing'])[-1]}")
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums + f"Built {name}; nothing was uploaded")


def built(engine: str, name: str, file: str) -> str:
    """Build an image with its tag; return its id."""
    tag = f"{name}:{version()}"
    label = f"org.opencontainers.image.version={version()}"
    output(engine, "build", "--quiet", "--label", label, "-f", f"deploy/{file}", "-t", tag, ".")
    return output(engine, "image", "inspect", "--format", "{{.Id}}", tag)


def output(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    if sys.argv[1:] == ["finish"]:
        finish()
        return 0
    found = refusals()
    print("\n".join(found) if found else f"{version()} can be released", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
