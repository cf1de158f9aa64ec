"""`Environments`: the languages and profiles that a judge offers, by the names that problems use."""

import hashlib
import json
import re
import signal
from collections.abc import Sequence
from functools import cached_property

from autoclave.config.languages import CppConfig
from autoclave.config.sandbox import JudgeConfig
from autoclave.core import Ended, HostError, InputError, Outcome, Problem, Program, SandboxFault
from autoclave.core.install import install_command
from autoclave.core.sized_cache import SizedCache
from autoclave.judge.profiles import (
    COMPILE_NATIVE,
    NATIVE,
    PROFILES,
    Built,
    CompileError,
    Environment,
    Language,
    Python,
    mathematics_profile,
    profiles_of,
    value_rules_of,
)
from autoclave.judge.spare_cells import SpareCells
from autoclave.judge.toolchain import Toolchain, compiler_check, find_toolchain, require_flags
from autoclave.sandbox import HostCheck, Limits, Profile, Sandbox, require_package
from autoclave.sandbox.host import tried


class Environments:
    """One per judge: compiled programs and open cells of checks are kept here. Safe to use from several threads."""

    def __init__(self, config: JudgeConfig) -> None:
        self.profiles = profiles_of(config.profiles)
        self._value_rules = value_rules_of(config.profiles)
        self.spare_cells = SpareCells()
        self.languages: dict[str, Language] = {"python": Python(), "cpp": Cpp(config.cpp)}

    def close(self) -> None:
        self.spare_cells.close()

    def of_problem(self, problem: Problem) -> Environment:
        """Return the environment in which programs for `problem` run.

        Raises InputError: its language or profile is unknown, or the language cannot be judged on its tests. HostError:
        a requirement of either is missing on this host.
        """
        try:
            return self.named(problem.language, problem.profile, problem.tests.kind)
        except InputError as error:
            raise InputError(f"problem {problem.id!r}: {error}") from None
        except HostError as error:
            raise HostError(f"problem {problem.id!r}: {error}") from None

    def named(self, language: str, profile: str, kind: str) -> Environment:
        """The environment for tests of `kind`.

        Raises InputError: the language or profile is unknown, or the language cannot be judged on such tests.
        HostError: a requirement of either is missing on this host.
        """
        for field, given, known in (("language", language, self.languages), ("profile", profile, self.profiles)):
            if given not in known:
                raise InputError(f"{field} = {given!r}: must be one of {', '.join(known)}")
        found = Environment(self.languages[language], self.profiles[profile], self._value_rules[profile], kind)
        if kind not in found.language.kinds:
            able = " or ".join(repr(name) for name, other in self.languages.items() if kind in other.kinds)
            raise InputError(f"language = {language!r}: tests of kind {kind!r} need {able or 'another judge'}")
        try:
            found.language.check(found.profile)
        except HostError as error:
            raise HostError(f"language = {language!r}, profile = {profile!r}: {error}") from None
        return found


def validate_languages(config: JudgeConfig) -> list[HostCheck]:
    """Support of the host for programs beyond the standard library: packages of profiles, and the compiler."""
    profiles = profiles_of(config.profiles).values()
    packages = [_check_packages(profile) for profile in profiles if profile.packages]
    return [*packages, _check_mathematics(), compiler_check(config.cpp.compiler)]


def _check_mathematics() -> HostCheck:
    def find() -> str:
        mathematics_profile()
        return "math-verify"

    why = "lets answers be compared by math-verify"
    return tried("mathematics", find, why, install_command("math"), "languages")


def _check_packages(profile: Profile) -> HostCheck:
    missing = [package for package in profile.packages if not _is_installed(package)]
    return HostCheck(
        f"packages of profile {profile.name}",
        not missing,
        False,
        "lets problems be judged that name this profile",
        _installation(missing or profile.packages),
        f"missing: {', '.join(missing)}" if missing else ", ".join(profile.packages),
        "languages",
    )


def recovery_of(package: str) -> str:
    """Return the hint that lets programs import a missing package."""
    known = next((name for name, profile in PROFILES.items() if package in profile.packages), None)
    profile = f"profile={known}" if known else f"profile=mine and judge.profiles={{mine: {{packages: [{package}]}}}}"
    return profile if _is_installed(package) else f"{profile} after {_installation([package])}"


def _installation(packages: Sequence[str]) -> str:
    return f"pip install {' '.join(packages)} into the environment of autoclave"


def _is_installed(package: str) -> bool:
    try:
        require_package(package)
    except HostError:
        return False
    return True


_SOURCE, _OBJECT, _EXECUTABLE = "program.cpp", "program.o", "program"
_NATIVE_PROFILE = Profile("native")
_ERROR = re.compile(
    r"(?!collect2: )(?:[^:]*/)?(?P<file>[^:/]+):"
    r"(?:(?P<line>[0-9]+):)?(?:[0-9]+:)? (?:[Ff]atal error|[Ee]rror): (?P<text>.*)"
)
_OTHER_ERROR = re.compile(
    r".*?(?P<text>undefined reference to .*|multiple definition of [^;]*|relocation truncated to fit"
    r"|out of memory|[Ff]ile too (?:large|big)|File size limit exceeded|No space left on device).*"
)
_KILLED = re.compile(
    rb"(?:\A|[\s\S]*\n)(?:[^\s:]+: fatal error: Killed signal terminated program \S+"
    rb"|collect2: fatal error: \S+ terminated with signal 9 \[Killed\].*)\ncompilation terminated\.\n*"
)
_FOLDERS = re.compile(r"(?:/[^\s/:;,'\"()]+)+/")
MESSAGE_BYTES = 1 << 16
"""Of messages that the runner passes on."""
_MESSAGE_CHARS = 200
_NEAR = 0.8


class Cpp:
    """C++ by GCC, statically linked. Safe to use from several threads."""

    kinds = ("stdin",)

    def __init__(self, config: CppConfig) -> None:
        self._config = config
        self._compiled = SizedCache[bytes, bytes | CompileError](config.cache_mb << 20)

    def check(self, profile: Profile) -> None:
        """Check the compiler. Profiles are interpreters and do not matter to a compiled program."""
        find_toolchain(self._config.compiler)
        require_flags(self._config.compiler, self._config.flags)

    def build(self, sandbox: Sandbox, program: Program, profile: Profile, kind: str) -> Built | CompileError:
        toolchain = find_toolchain(self._config.compiler)
        key = self._key(program, toolchain)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compile(sandbox, program, toolchain)
            self._compiled.add(key, compiled, _size(compiled))
        return compiled if isinstance(compiled, CompileError) else Built(compiled, _NATIVE_PROFILE, NATIVE)

    @cached_property
    def _limits(self) -> Limits:
        config = self._config
        return Limits(
            cpu_s=config.time_limit_s,
            wall_s=10 * config.time_limit_s + 1,  # compilers do not sleep, but the machine may be busy
            memory_mb=config.memory_limit_mb,
            output_bytes=config.program_limit_mb << 20,
            processes=32,
            disk_mb=8 * config.program_limit_mb,  # the program, its object file, and what the linker puts aside
            open_files=64,
        )

    def _key(self, program: Program, toolchain: Toolchain) -> bytes:
        parts = [program.source, toolchain.driver, toolchain.version, *self._config.flags]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def _compile(self, sandbox: Sandbox, program: Program, toolchain: Toolchain) -> bytes | CompileError:
        """Return the executable file, or the error.

        Raises SandboxFault: the cell died, or the host was too busy, for reasons that are not the program's.
        """
        compile_only = ["-w", "-Wfatal-errors", "-fdiagnostics-color=never", "-pipe", "-c", _SOURCE, "-o", _OBJECT]
        order = {
            "file": _SOURCE,
            "source": program.source,
            "commands": [
                [toolchain.driver, *self._config.flags, *compile_only],
                [toolchain.driver, *self._config.flags, "-static", _OBJECT, "-o", _EXECUTABLE],
            ],
            "environment": {"PATH": toolchain.search_path, "LC_ALL": "C", "TMPDIR": "/tmp", "SOURCE_DATE_EPOCH": "0"},
            "result": _EXECUTABLE,
        }
        profile = Profile("compile_cpp", paths=toolchain.paths, memory_mb=self._limits.memory_mb)
        with sandbox.open(json.dumps(order).encode(), profile, self._limits, COMPILE_NATIVE) as cell:
            if cell.compile_error is not None:
                return CompileError("the source is too large")
            return self._result(cell.run(b""))

    def _result(self, outcome: Outcome) -> bytes | CompileError:
        config = self._config
        used_most_of_its_time = outcome.cpu_s >= _NEAR * config.time_limit_s
        match outcome.ended:
            case Ended.EXITED if outcome.exit_code == 0:
                return outcome.stdout
            case Ended.EXITED if not reports_kill(outcome.stderr):
                return CompileError(first_error(outcome.stderr))
            case Ended.CPU_TIME | Ended.WALL_TIME if outcome.ended is Ended.CPU_TIME or used_most_of_its_time:
                return CompileError(f"compilation takes longer than {config.time_limit_s:g} s", is_time_limit=True)
            case Ended.MEMORY:
                return CompileError(f"compilation needs more than {config.memory_limit_mb} MiB")
            case Ended.OUTPUT:
                return CompileError(f"the compiled program is larger than {config.program_limit_mb} MiB")
            case Ended.SIGNALLED if outcome.signal != signal.SIGKILL:
                return CompileError("the compiler crashed")
            case _:
                raise SandboxFault(f"the compiler was stopped by the host ({outcome.ended})")


def reports_kill(messages: bytes) -> bool:
    """Return whether the compiler's driver reports that a part of it was killed.

    A source can have any text printed, but not last: its own errors end with other lines. Messages that were cut may
    end with what it chose.
    """
    return len(messages) < MESSAGE_BYTES and _KILLED.fullmatch(messages) is not None


def first_error(messages: bytes) -> str:
    """Return the first error that the compiler or linker reports, without folders of the host."""
    lines = messages.decode("utf-8", "replace").splitlines()
    found = next((match for line in lines if (match := _ERROR.fullmatch(line) or _OTHER_ERROR.fullmatch(line))), None)
    if found is None:
        return "linking fails" if b"ld returned" in messages else "the compiler reports no error that can be shown"
    place = found.groupdict()
    text = "".join(char if char.isprintable() else "?" for char in _FOLDERS.sub("", found["text"]))[:_MESSAGE_CHARS]
    return f"{text} (line {place['line']})" if place.get("file") == _SOURCE and place["line"] else text


def _size(compiled: bytes | CompileError) -> int:
    return 512 + (len(compiled) if isinstance(compiled, bytes) else len(compiled.message))
