"""Run one program without tests and say how it ended."""

from __future__ import annotations

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import Ended, InputError, Outcome, Program, SandboxFault
from autoclave.judge.limits import sandbox_limits
from autoclave.judge.profiles import PROFILES, SCRIPT
from autoclave.sandbox import Sandbox, open_sandbox

_ATTEMPTS = 3


def run_program(
    sandbox_config: SandboxConfig,
    program: Program,
    stdin: bytes = b"",
    *,
    profile: str = "plain",
    time_limit_s: float = 6.0,
) -> Outcome:
    """Run `program` sealed with `stdin`. A source that does not compile exits with 1 and says why on standard error.

    Raises:
        InputError: the profile or the language is unknown.
        IsolationError: this host cannot isolate as the settings ask.
        SandboxFault: the sandbox failed, also on fresh cells.
    """
    if profile not in PROFILES:
        raise InputError(f"profile = {profile!r}: must be one of {', '.join(PROFILES)}")
    if program.language != "python":
        raise InputError(f"language = {program.language!r}: must be 'python'")
    sandbox = open_sandbox(sandbox_config)
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _run_once(sandbox, sandbox_config, program, stdin, profile, time_limit_s)
            except SandboxFault:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("not reached")
    finally:
        sandbox.close()


def _run_once(
    sandbox: Sandbox, config: SandboxConfig, program: Program, stdin: bytes, profile: str, time_limit_s: float
) -> Outcome:
    with sandbox.open(program, PROFILES[profile], sandbox_limits(config, time_limit_s), SCRIPT) as cell:
        if cell.compile_error is None:
            return cell.run(stdin)
        message = f"{cell.compile_error}\n".encode()
        return Outcome(Ended.EXITED, 1, None, b"", message, 0, 0, 0.0, 0.0, 0.0, cell.compile_error)
