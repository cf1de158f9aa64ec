"""Languages of programs, with the profiles of their interpreters.

A language turns a program into the arguments of a cell: content, profile and runner. `Environments` holds the languages
of a judge; the kinds of tests use it and do not depend on a language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autoclave.core import Program
from autoclave.judge.profiles import CALL_SERVER, SCRIPT
from autoclave.judge.values import ValueRule
from autoclave.sandbox import Profile, Runner, Sandbox, require_package


@dataclass(frozen=True, slots=True)
class Built:
    """A program ready for cells."""

    content: bytes
    profile: Profile
    runner: Runner


@dataclass(frozen=True, slots=True)
class CompileError:
    """Reason for which a program cannot be run at all; the message is fit for a verdict."""

    message: str
    is_time_limit: bool = False


class Language(Protocol):
    """Runner of programs of one language."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tests that its programs can be judged on."""
        ...

    def check(self, profile: Profile) -> None:
        """Make sure that programs can run here with `profile`.

        Raises HostError: a requirement is missing on this host; the message has the fix.
        """

    def build(self, sandbox: Sandbox, program: Program, profile: Profile, kind: str) -> Built | CompileError:
        """Ready `program` for tests of `kind`, compiling it in `sandbox` if need be.

        Raises HostError: a requirement is missing on this host. SandboxFault: no cell could be made, or it died for
        reasons that are not the program's.
        """
        ...


class Python:
    """Python source. The interpreter in the cell compiles it, so syntax errors show when the cell is opened."""

    kinds = ("stdin", "call", "check")
    _RUNNERS: Mapping[str, Runner] = {"stdin": SCRIPT, "call": CALL_SERVER}

    def check(self, profile: Profile) -> None:
        for package in profile.packages:
            require_package(package)

    def build(self, sandbox: Sandbox, program: Program, profile: Profile, kind: str) -> Built | CompileError:
        return Built(program.source.encode("utf-8", "surrogatepass"), profile, self._RUNNERS[kind])


@dataclass(frozen=True, slots=True)
class Environment:
    """A language with one of its profiles: where the programs of a problem run, for tests of one kind."""

    language: Language
    profile: Profile
    value_rule: ValueRule
    kind: str

    def build(self, sandbox: Sandbox, program: Program) -> Built | CompileError:
        """Ready `program` for cells of `sandbox`.

        Raises:
            HostError: a requirement is missing on this host.
            SandboxFault: no cell could be made, or it died for reasons that are not the program's.
        """
        return self.language.build(sandbox, program, self.profile, self.kind)
