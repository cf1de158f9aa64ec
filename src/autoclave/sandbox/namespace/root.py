"""What a cell sees of the host: the interpreter, its standard library and the shared libraries these load.

The loader itself is asked: a bare interpreter opens its extension modules and lists what got mapped. Nothing else is
shown, in particular no site-packages, no home folder, nothing of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoclave.core import HostError

_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_SCRATCH_CANDIDATES = ("/tmp", "/mnt", "/run", "/media", "/sys", "/proc")

# tkinter would drag in a window system, and no cell has one.
_PROBE = """
import ctypes, glob, json, os, sys, sysconfig
for path in glob.glob(os.path.join(sysconfig.get_config_var("DESTSHARED") or "", "*.so")):
    if "tkinter" not in path:
        try: ctypes.CDLL(path)
        except OSError: pass
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
paths = sysconfig.get_paths()
print(json.dumps({
    "mapped": sorted(path for path in mapped if ".so" in os.path.basename(path)),
    "library": sorted({paths["stdlib"], paths["platstdlib"]}),
    "packages": sorted({paths["purelib"], paths["platlib"]}),
    "executable": os.path.realpath(sys.executable),
}))
"""


@dataclass(frozen=True, slots=True)
class RootPlan:
    """Paths bound read-only at the same place, folders in them to hide, symbolic links, and where to assemble it."""

    executable: str
    binds: tuple[str, ...]
    masks: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    scratch: str


def base_interpreter() -> str:
    """The interpreter that this one was made from: outside of any virtual environment."""
    return getattr(sys, "_base_executable", "") or sys.executable


@cache
def root_plan(executable: str) -> RootPlan:
    """The plan for `executable`.

    Raises:
        HostError: the interpreter does not start.
    """
    found = _probe(executable)
    folders = [path for path in found["library"] if Path(path).is_dir()]
    libraries = [path for path in found["mapped"] if not any(path.startswith(f"{folder}/") for folder in folders)]
    real = found["executable"][0]
    binds = (*folders, *libraries, real, *_DEVICES)
    masks = {f"{folder}/{name}" for folder in folders for name in ("site-packages", "dist-packages")}
    masks |= {path for path in found["packages"] if any(path.startswith(f"{folder}/") for folder in folders)}
    links = {link: target for library in libraries for link, target in _names_of(Path(library))}
    links |= _folder_links(binds) | ({executable: real} if executable != real else {})
    return RootPlan(
        executable=executable,
        binds=binds,
        masks=tuple(sorted(path for path in masks if Path(path).is_dir())),
        links=(*sorted(links.items()), ("/dev/shm", "/tmp")),
        scratch=next(p for p in _SCRATCH_CANDIDATES if Path(p).is_dir() and not any(b.startswith(p) for b in binds)),
    )


def _probe(executable: str) -> dict[str, list[str]]:
    try:
        done = subprocess.run(
            [executable, "-I", "-S", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or error
        raise HostError(f"the Python interpreter {executable} does not start: {detail}") from None
    found = json.loads(done.stdout)
    return found | {"executable": [found["executable"]]}


def _names_of(library: Path) -> list[tuple[str, str]]:
    """The other names in its folder under which a shared library is asked for: libz.so.1 for libz.so.1.3."""
    stem = library.name.split(".so")[0]
    return [
        (str(link), library.name)
        for link in library.parent.glob(f"{stem}*.so*")
        if link.is_symlink() and link.resolve() == library
    ]


def _folder_links(binds: tuple[str, ...]) -> dict[str, str]:
    """/lib -> usr/lib and the like where they lead to `binds`, and the loader's name where it is a link by itself."""
    links: dict[str, str] = {}
    for name in ("/lib", "/lib64", "/bin"):
        path = Path(name)
        # /lib64 leads to the loader, which may be a link from there: see below
        if path.is_symlink() and (name == "/lib64" or any(bind.startswith(f"{path.resolve()}/") for bind in binds)):
            links[name] = str(path.readlink())
    for folder in ("/usr/lib64", "/lib64", "/lib"):
        if Path(folder).is_symlink():
            continue
        loaders = [path for path in Path(folder).glob("ld-linux*.so*") if path.is_symlink()]
        links |= {str(loader): str(loader.readlink()) for loader in loaders}
    return links
