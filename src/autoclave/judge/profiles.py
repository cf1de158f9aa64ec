"""The interpreters that problems select by name, and the runners that drive a program in its cell.

`lcb` has the names and limits that LiveCodeBench gives a program, `plain` is Python as it comes, `lcb_numpy` and
`plain_numpy` are these with numpy to import, `leetcode` is `lcb` with what LeetCode adds. More come from the settings.

A language turns a program into the arguments of a cell: content, profile and runner. `Environments` holds the languages
of a judge; the kinds of tests use it and do not depend on a language.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from autoclave.config.languages import ProfileConfig
from autoclave.core import HostError, Program
from autoclave.core.install import install_command
from autoclave.core.leetcode import NODES
from autoclave.core.outcome import LIMIT_OF_ERRNO
from autoclave.judge.values import ValueRule
from autoclave.sandbox import Profile, Runner, Sandbox, require_package

_LCB_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
_STARRED = (*_LCB_MODULES, "builtins", "typing")
_DEEP = 50_000

_LCB = Profile(
    name="lcb",
    # The order matters: `open` and `pow` end up as builtins, `copy`, `datetime` and `random` as modules.
    preamble="\n".join(
        [f"from {name} import *" for name in _STARRED]
        + [f"import {name}" for name in _LCB_MODULES]
        + [f"sys.setrecursionlimit({_DEEP})"]
    ),
    modules=_STARRED,
    recursion_limit=_DEEP,
    int_max_str_digits=_DEEP,
    is_warmed=True,
)
_PLAIN = Profile(name="plain", modules=("sys",), is_warmed=True)
_NUMPY_MODULES = ("numpy", "numpy.linalg", "numpy.random", "numpy.fft")  # the last two are else loaded at first use

_LEETCODE = f"\nfrom sortedcontainers import *\ninf = float('inf')\n{NODES}"

PROFILES: Mapping[str, Profile] = {
    "lcb": _LCB,
    "plain": _PLAIN,
    "lcb_numpy": replace(_LCB, name="lcb_numpy", modules=_STARRED + _NUMPY_MODULES, packages=("numpy",)),
    "plain_numpy": replace(_PLAIN, name="plain_numpy", modules=("sys", *_NUMPY_MODULES), packages=("numpy",)),
    "leetcode": replace(
        _LCB,
        name="leetcode",
        preamble=_LCB.preamble + _LEETCODE,
        modules=(*_STARRED, *_NUMPY_MODULES, "sortedcontainers"),
        packages=("numpy", "sortedcontainers"),
    ),
}
"""The profiles of every judge."""


def profiles_of(configured: Mapping[str, ProfileConfig]) -> Mapping[str, Profile]:
    """The built-in profiles and the configured ones, by name."""
    return {**PROFILES, **{name: _extended(name, config) for name, config in configured.items()}}


def _extended(name: str, config: ProfileConfig) -> Profile:
    base = PROFILES[config.base]
    return replace(
        base,
        name=name,
        preamble=f"{base.preamble}\n{config.preamble}",
        modules=base.modules + config.packages,
        packages=config.packages,
        is_warmed=not (config.preamble or config.packages),  # these may keep state of a run
    )


_STRICT = ("plain", "plain_numpy")


def value_rules_of(configured: Mapping[str, ProfileConfig]) -> Mapping[str, ValueRule]:
    """Return how returned values are compared, by profile; the configured ones compare as their base does."""
    bases = {**{name: name for name in PROFILES}, **{name: config.base for name, config in configured.items()}}
    return {name: "strict" if base in _STRICT else "lenient" for name, base in bases.items()}


_HERE = Path(__file__).parent


def _runner(name: str, *modules: str, is_warmed: bool = False) -> Runner:
    """Return a runner of the joined source of these modules, preceded by the table of limits by errno."""
    sources = [(_HERE / f"{module}.py").read_text(encoding="utf-8") for module in modules]
    return Runner(name, "\n".join([f"{LIMIT_OF_ERRNO = }", *sources]), is_warmed)


SCRIPT = _runner("script", "runners/python_program", "runners/failure", "runners/script", is_warmed=True)
"""Runs a program as a script, with real standard streams."""

_FRAMES = ("plain_data", "runners/frames", "runners/python_program", "runners/failure")

_FREE_RUN = (*_FRAMES, "runners/script", "runners/free_run")

FREE_RUN = _runner("free_run", *_FREE_RUN)
"""Runs a program as `SCRIPT` does, with files around it, and reports files and its last value."""

NOTEBOOK = _runner("notebook", *_FREE_RUN, "runners/notebook")
"""Runs pieces of Python one after the other, and reports the output of each."""

CALL_SERVER = _runner("call_server", *_FRAMES, "runners/entry_point", "runners/call_server", is_warmed=True)
"""Calls one function of the program; arguments and result travel as plain data."""

_OBSERVATION = ("traced_values", *_FRAMES)

SCRIPT_TRACE = _runner("script_trace", *_OBSERVATION, "runners/script", "runners/observation", "runners/trace_script")
"""Runs a program as `SCRIPT` does and reports its final variables."""

CALL_TRACE = _runner(
    *("call_trace", *_OBSERVATION, "runners/entry_point", "runners/call_server"),
    *("runners/observation", "runners/trace_call"),
)
"""Calls one function as `CALL_SERVER` does and reports its final variables."""

CUSTOM_CHECKER = _runner("custom_checker", *_FRAMES, "runners/custom_checker")
"""Runs the checker of a problem on a result of another cell."""

ANSWER_CHECKER = _runner("answer_checker", *_FRAMES, "runners/answer_text", "runners/answer_checker")
"""Compares an answer with the expected one, in a cell of its own."""

COMPILE_NATIVE = _runner("compile_native", "runners/compile_native")
"""Runs a compiler on the program and returns the executable file."""

NATIVE = _runner("native", "runners/native")
"""Runs a compiled program, with real standard streams."""
_PEER = (
    *("runners/marshalling", "runners/set_order", "runners/encoder", "runners/decoder"),
    *("runners/python_program", "runners/failure", "runners/peer"),
)

CANDIDATE = _runner("candidate", *_PEER, "runners/entry_point", "runners/candidate", is_warmed=True)
"""Runs a program and serves the requests of a check."""

CHECK_HOST = _runner("check_host", *_PEER, "runners/check_host", is_warmed=True)
"""Runs a check, in a cell of its own."""


_PACKAGES = ("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath")
_RUNTIME = "antlr4-python3-runtime"
_PREAMBLE = r"""
import importlib.metadata, logging
logging.disable(logging.CRITICAL)
_version = importlib.metadata.version
importlib.metadata.version = lambda name: {known}[name] if name in {known} else _version(name)
import math_verify
_pairs = [
    ("1/2", "0.5"), (r"\frac{{1}}{{2}}", "50\%"), (r"\sqrt{{2}}", "2^{{1/2}}"), ("(1,2]", "(1,2]"), ("x>1", "1<x"),
    (r"\{{1,2\}}", r"\{{2,1\}}"), (r"\text{{yes}}", "yes"), ("x^2+2x+1", "(x+1)^2"), ("x=1", "1"), ("1+1", "3"),
]
for _pair in _pairs:
    _read = [math_verify.parse(r"\boxed{{" + _text + "}}", parsing_timeout=None) for _text in _pair]
    math_verify.verify(*_read, timeout_seconds=None)
del _pairs, _pair, _read
"""
"""The parser queries a package version, which a cell cannot look up. First comparisons build tables for later ones."""


@cache
def mathematics_profile() -> Profile:
    """The profile of cells that compare mathematics.

    Raises HostError: a package is not installed; the message has the fix.
    """
    try:
        for package in _PACKAGES:
            require_package(package)
        known = {_RUNTIME: version(_RUNTIME)}
    except HostError as error:
        raise HostError(f"{str(error).partition(' Fix:')[0]} Fix: {install_command('math')}") from None
    except PackageNotFoundError:
        raise HostError(f"package {_RUNTIME!r} is not installed. Fix: {install_command('math')}") from None
    return Profile(name="mathematics", preamble=_PREAMBLE.format(known=known), packages=_PACKAGES)


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
