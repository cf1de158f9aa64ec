"""Part of the host that a cell sees: the interpreter, its standard library and the shared libraries these load.

The loader itself decides: a bare interpreter opens its extension modules and lists the mapped files. A profile may add
packages, which appear in a folder of their own, and paths. Nothing else is shown, in particular no site-packages, no
home folder and nothing of Autoclave.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoclave.core import HostError
from autoclave.sandbox.packages import find_packages

PACKAGES_FOLDER = "/packages"
"""Path of the packages of its profile in a cell."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_LOCALE = "/usr/lib/locale/C.utf8"
"""For programs that call `locale.setlocale(locale.LC_ALL, "")`."""
_TIME_ZONES = "/usr/share/zoneinfo"
"""For `zoneinfo`, where the host has them."""
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
    """Paths bound read-only at the same place, or elsewhere; folders to hide, symbolic links, where to assemble it."""

    executable: str
    binds: tuple[str, ...]
    placed: tuple[tuple[str, str], ...]
    masks: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    scratch: str


def base_interpreter() -> str:
    """The interpreter that this one was made from: outside of any virtual environment."""
    return getattr(sys, "_base_executable", "") or sys.executable


@cache
def root_plan(executable: str, packages: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> RootPlan:
    """The plan for `executable`, with `packages` of this process's environment and `paths` of the host.

    Raises HostError: the interpreter does not start, or a package or path is missing on the host.
    """
    found = _probe(executable)
    extra = find_packages(packages, executable)
    shown = [_shown(path) for path in paths]
    real = found["executable"][0]
    tops = {path for path in found["library"] if Path(path).is_dir()} | {
        path for path, _ in shown if Path(path).is_dir()
    }
    folders = tuple(sorted(top for top in tops if not _is_inside(top, tops)))
    libraries = [path for path in dict.fromkeys([*found["mapped"], *extra.libraries]) if not _is_inside(path, tops)]
    files = [path for path, _ in shown if path not in tops and not _is_inside(path, tops)]
    data = [path for path in (_LOCALE, _TIME_ZONES) if Path(path).is_dir()]
    binds = tuple(dict.fromkeys((*folders, *data, *libraries, *files, real, *_DEVICES)))
    placed = tuple((source, f"{PACKAGES_FOLDER}/{name}") for source, name in extra.places)
    masks = {f"{folder}/{name}" for folder in found["library"] for name in ("site-packages", "dist-packages")}
    masks |= {path for path in found["packages"] if _is_inside(path, tops)}
    links = {link: target for library in [*libraries, *files] for link, target in _names_of(Path(library))}
    links |= {link: target for target, link in shown if link and not _is_inside(link, tops)}
    links |= _folder_links(binds) | ({executable: real} if executable != real else {})
    sources = (*binds, *(source for source, _ in placed))
    return RootPlan(
        executable=executable,
        binds=binds,
        placed=placed,
        masks=tuple(sorted(path for path in masks if Path(path).is_dir())),
        links=(*sorted(links.items()), ("/dev/shm", "/tmp")),
        scratch=next(p for p in _SCRATCH_CANDIDATES if Path(p).is_dir() and not any(s.startswith(p) for s in sources)),
    )


def _shown(path: str) -> tuple[str, str]:
    """Path to bind for `path`, and the name to link to it when `path` is a symbolic link itself."""
    name = Path(path).parent.resolve() / Path(path).name
    if not name.exists():
        raise HostError(f"{path}: a profile shows it to programs, but this host has no such file")
    real = name.resolve()
    return str(real), str(name) if name != real else ""


def _is_inside(path: str, folders: set[str]) -> bool:
    return any(str(parent) in folders for parent in Path(path).parents)


@cache
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
    """Return the symbolic links to a shared library in its folder, such as libz.so.1 for libz.so.1.3."""
    stem, links = library.name.split(".so")[0], _links_in(library.parent)
    return [(str(link), library.name) for link, real in links if link.name.startswith(stem) and real == library]


@cache
def _links_in(folder: Path) -> list[tuple[Path, Path]]:
    return [(link, Path(os.path.realpath(link))) for link in folder.glob("*.so*") if link.is_symlink()]


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
