"""Settings of the languages that programs are written in, and of the interpreters that they find."""

import sys
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat

BUILT_IN_PROFILES = ("lcb", "plain", "lcb_numpy", "plain_numpy", "leetcode")
"""Profiles that every judge has."""

_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ProfileConfig(Config):
    """A Python interpreter of your own, for problems that name it as their `profile`."""

    base: Literal["lcb", "plain"] = "lcb"
    """Profile that this one extends."""
    packages: tuple[_Identifier, ...] = ()
    """Modules, as they are imported, that programs may use beyond the standard library. They come from the judge's own
    environment and are imported before any program. Name those that they import, too."""
    preamble: str = ""
    """Python text that runs after the preamble of `base`, before every program."""

    def broken_rules(self) -> Iterator[str]:
        for name in self.packages:
            if name in sys.stdlib_module_names:
                yield (
                    f'packages: "{name}" is in the standard library, which every program has; '
                    f"to import it beforehand write `import {name}` in the preamble"
                )


class CppConfig(Config):
    """Compilation of C++ programs. They are linked statically and run in a cell without the compiler."""

    compiler: str = "g++"
    """The GCC compiler driver: a command or a path."""
    flags: tuple[str, ...] = ("-O2", "-std=c++20")
    """Options of the compiler. `-static` is always added."""
    time_limit_s: PositiveFloat = 30.0
    """Most CPU seconds of one compilation; more is a compile error."""
    memory_limit_mb: Positive = 1024
    """Memory of one compilation, in MiB; more is a compile error."""
    program_limit_mb: Positive = 32
    """Size of a compiled program, in MiB; more is a compile error."""
    cache_mb: NonNegative = 256
    """Memory for compiled programs that may be run again, in MiB."""
