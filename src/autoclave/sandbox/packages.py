"""Location of the packages of a profile on this host, and the shared libraries that their extension modules load.

Imports nothing into this process: the import system returns the places, and the loader, in a bare interpreter of its
own, the libraries.
"""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoclave.core import HostError

_TIMEOUT_S = 120.0
_LIST_LIBRARIES = """
import ctypes, json, os, sys
for top in sys.argv[1:]:
    files = [top] if os.path.isfile(top) else [os.path.join(f, n) for f, _, names in os.walk(top) for n in names]
    for path in sorted(path for path in files if path.endswith(".so")):
        try: ctypes.CDLL(path)
        except OSError: pass
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
print(json.dumps(sorted(path for path in mapped if ".so" in os.path.basename(path))))
"""


@dataclass(frozen=True, slots=True)
class FoundPackages:
    """`places`: (path on the host, path inside of the folder of packages); `libraries`: paths on the host."""

    places: tuple[tuple[str, str], ...]
    libraries: tuple[str, ...]


def require_package(name: str) -> None:
    """Make sure that the environment of this process has the top-level module `name`.

    Raises:
        HostError: it is not installed.
    """
    _place_of(name)


@cache
def find_packages(names: tuple[str, ...], executable: str) -> FoundPackages:
    """Return places of the top-level modules `names`, and the libraries that the loader maps for them.

    A library that lies beside a package, as in `numpy.libs`, keeps its place relative to it.

    Raises HostError: one is not installed, or the interpreter does not start.
    """
    if not names:
        return FoundPackages((), ())
    tops = [_place_of(name) for name in names]
    places = {str(top): top.name for top in tops}
    libraries: list[str] = []
    for library in map(Path, _mapped_libraries(executable, tops)):
        if any(library.is_relative_to(top) for top in tops):
            continue
        beside = next((top.parent for top in tops if library.is_relative_to(top.parent)), None)
        if beside is None:
            libraries.append(str(library))
        else:
            places[str(library)] = str(library.relative_to(beside))
    return FoundPackages(tuple(places.items()), tuple(libraries))


@cache
def _place_of(name: str) -> Path:
    """The folder of a package, or the file of a module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    origin = spec and (next(iter(spec.submodule_search_locations or ()), None) or spec.origin)
    if not origin or not Path(origin).exists():
        raise HostError(
            f"package {name!r} is not installed in the judge's environment ({sys.prefix}). "
            f"Fix: install it there, as with `{sys.executable} -m pip install {name}`, or use a profile without it."
        )
    return Path(origin).resolve()


def _mapped_libraries(executable: str, tops: list[Path]) -> list[str]:
    command = [executable, "-I", "-S", "-c", _LIST_LIBRARIES, *map(str, tops)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or error
        raise HostError(f"the libraries of {', '.join(top.name for top in tops)} cannot be listed: {detail}") from None
    return json.loads(done.stdout)
