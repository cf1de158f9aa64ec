"""The C++ compiler of this host and the files that it needs, as the compiler itself reports them.

This module compiles nothing. Compiling takes place in a cell that shows these files.
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoclave.core import HostError
from autoclave.sandbox import HostCheck
from autoclave.sandbox.host import tried

_TIMEOUT_S = 60.0
_PROGRAMS = ("cc1plus", "collect2", "as", "ld")
_FILES = (
    "crt1.o",
    "crti.o",
    "crtn.o",
    "crtbeginT.o",
    "crtend.o",
    "libc.a",
    "libm.a",
    "libstdc++.a",
    "libgcc.a",
    "libgcc_eh.a",
)
_OPTIONAL_FILES = ("liblto_plugin.so", "libpthread.a", "libmvec.a")
_INCLUDE_FOLDERS = re.compile(r"^#include <\.\.\.> search starts here:\n((?: .*\n)*)", re.MULTILINE)
_FIX = (
    "install GCC's C++ compiler with the static C library: "
    "apt-get install g++, or dnf install gcc-c++ glibc-static libstdc++-static"
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`driver` is the command, `search_path` where it finds assembler and linker, `paths` all files it needs."""

    driver: str
    version: str
    search_path: str
    paths: tuple[str, ...]


@cache
def find_toolchain(compiler: str) -> Toolchain:
    """Files that belong to `compiler`, a command or path of GCC's C++ driver.

    Raises HostError: it, or a part of it, is missing here.
    """
    found = shutil.which(compiler)
    if found is None:
        raise HostError(f"judge.cpp.compiler = {compiler!r}: no such command. Fix: {_FIX}.")
    driver = str(Path(found).resolve())
    programs = [_program(driver, name) for name in _PROGRAMS]
    files = [_file(driver, name) for name in _FILES]
    missing = [name for name, path in zip(_PROGRAMS + _FILES, [*programs, *files], strict=True) if path is None]
    if missing:
        raise HostError(f"judge.cpp.compiler = {compiler!r}: {', '.join(missing)} not found. Fix: {_FIX}.")
    programs = [path for path in programs if path]
    files = [path for name in _FILES + _OPTIONAL_FILES for path in _with_parts(_file(driver, name))]
    libraries = [path for executable in [driver, *programs] for path in _shared_libraries(executable)]
    return Toolchain(
        driver,
        _query(driver, "--version").partition("\n")[0],
        os.pathsep.join(dict.fromkeys(os.path.dirname(path) for path in programs)),
        tuple(dict.fromkeys([driver, *programs, *files, *_include_folders(driver), *libraries])),
    )


@cache
def require_flags(compiler: str, flags: tuple[str, ...]) -> None:
    """Make sure that `compiler` accepts `flags`, by compiling an empty source. Raises HostError: it rejects them."""
    command = [find_toolchain(compiler).driver, *flags, "-fsyntax-only", "-x", "c++", os.devnull]
    done = subprocess.run(
        command, env=os.environ | {"LC_ALL": "C"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reported = (done.stderr.strip().splitlines() or ["no explanation"])[0]
        raise HostError(
            f"judge.cpp.flags = {json.dumps(flags)}: {reported}. Fix: leave out what this compiler does not know."
        )


def compiler_check(compiler: str) -> HostCheck:
    """Return whether C++ programs can be judged here."""
    why = "lets C++ programs be judged"
    return tried("C++ compiler", lambda: find_toolchain(compiler).version, why, _FIX, "languages")


def _program(driver: str, name: str) -> str | None:
    return shutil.which(_query(driver, f"-print-prog-name={name}").strip())


def _file(driver: str, name: str) -> str | None:
    path = os.path.normpath(_query(driver, f"-print-file-name={name}").strip())
    return path if os.path.isabs(path) and os.path.exists(path) else None


def _with_parts(path: str | None) -> list[str]:
    """The file, and when it is a linker script, the files that it names."""
    if path is None:
        return []
    content = Path(path).read_bytes()[:4096]
    if content.startswith((b"!<arch>", b"!<thin>", b"\x7fELF")):
        return [path]
    named = re.findall(r"/[^\s()]+", re.sub(r"/\*.*?\*/", "", content.decode(errors="replace"), flags=re.DOTALL))
    return [path, *(part for part in named if os.path.exists(part))]


def _include_folders(driver: str) -> list[str]:
    listed = _INCLUDE_FOLDERS.search(_query(driver, "-E", "-v", "-x", "c++", os.devnull))
    folders = listed[1].split("\n") if listed else []
    return [os.path.normpath(folder.strip()) for folder in folders if folder.strip() and os.path.isdir(folder.strip())]


def _shared_libraries(executable: str) -> list[str]:
    """Return the libraries that the loader would map for `executable`, as the loader lists them; it does not run."""
    done = subprocess.run(
        [executable],
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE)


def _query(driver: str, *question: str) -> str:
    """Return output and messages of the compiler."""
    try:
        done = subprocess.run(
            [driver, *question],
            env=os.environ | {"LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(f"the compiler {driver} does not answer ({error}). Fix: {_FIX}.") from None
    return done.stdout
