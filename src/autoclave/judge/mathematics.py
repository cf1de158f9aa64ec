"""The interpreter in which mathematics is compared: math-verify and what it imports, warm. Not for programs."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from autoclave.core import HostError
from autoclave.core.install import install_command
from autoclave.sandbox import Profile, require_package

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
"""A cell does not see what pip knows, and the parser asks it for a version. The first comparisons build tables that
all later ones find."""


@cache
def mathematics_profile() -> Profile:
    """The profile of cells that compare mathematics.

    Raises:
        HostError: what it needs is not installed; the message says the fix.
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
