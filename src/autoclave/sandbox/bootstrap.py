"""Start the code of `guest/` in a bare interpreter.

Its modules are executed from their text under neutral names, so that the call stack does not reveal the path of
autoclave on the host.
"""

from pathlib import Path

from autoclave.core import HostError

FOLDER = Path(__file__).parent / "guest"
"""The working directory that the command needs."""

_MODULES = (
    "linux",
    "filter",
    "landlock",
    "leftovers",
    "program_file",
    "contained",
    "unsealed",
    "enter",
    "confinement",
    "loops",
    "process",
    "warm_up",
    "init",
    "zygote",
    "joining",
    "probe",
)  # in order of import
_FOR_FILES = ("linux", "filter", "enter")
_START = f"""
import sys, types
package = sys.modules["guest"] = types.ModuleType("guest")
package.__path__ = []
called, *arguments = sys.argv[2:]
files = {{name: name + ".py" for name in {_MODULES}}}
if called not in files:
    own = {{path.rpartition("/")[2].removesuffix(".py"): path for path in called.split("\\n")}}
    files, called = {{**{{name: files[name] for name in {_FOR_FILES}}}, **own}}, list(own)[-1]
for name, path in files.items():
    module = sys.modules["guest." + name] = types.ModuleType("guest." + name)
    module.__package__ = "guest"
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), "<guest " + name + ">", "exec", dont_inherit=True), module.__dict__)
    setattr(package, name, module)
getattr(package, called).main(*arguments)
"""
_COMPILED = FOLDER / "_cell.abi3.so"


def is_compiled() -> bool:
    """Return whether the compiled part of the guest was built when this package was installed."""
    return _COMPILED.exists()


def require_current_parts(package: Path = FOLDER.parent) -> None:
    """Refuse compiled parts of a checkout that are older than their source: both sides of a cell must agree.

    Raises HostError: one is older.
    """
    if not (package.parents[2] / "hatch_build.py").exists():
        return  # not a checkout
    for source in (package / "guest/_cell.c", package / "_streams.c"):
        built = source.with_suffix(".abi3.so")
        if built.exists() and built.stat().st_mtime < source.stat().st_mtime:
            raise HostError(f"{built}: is older than its source {source.name}. Fix: make setup")


def guest_command(executable: str, module: str, *arguments: str, use_compiled: bool = True) -> list[str]:
    """The command line that runs `main(*arguments)` of a guest module, without site-packages or user settings.

    `module` is a name, or the path of a file whose code imports `linux`, `filter` and `enter` from the package `guest`;
    before it, each on a line of its own, may stand paths of other files that it imports from there.
    """
    compiled = str(_COMPILED) if use_compiled and is_compiled() else ""
    return [executable, "-S", "-s", "-P", "-c", _START, compiled, module, *arguments]


def guest_environment() -> dict[str, str]:
    """The environment of a zygote; what only its loader needs is gone before a program runs."""
    return {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        # One arena, or every thread of a program would reserve 64 MiB of its address space.
        "MALLOC_ARENA_MAX": "1",
        "LD_BIND_NOW": "1",  # no work left for first calls
        "PYTHONDONTWRITEBYTECODE": "1",
        # No threads: forks of the zygote would miss them.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
