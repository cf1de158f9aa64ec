"""Run one program without tests and say how it ended."""

from __future__ import annotations

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Ended, Outcome, Program, SandboxFault
from autoclave.judge.environments import Environments
from autoclave.judge.languages import CompileError, Environment
from autoclave.judge.limits import sandbox_limits
from autoclave.sandbox import Sandbox, open_sandbox

_ATTEMPTS = 3


def run_program(
    sandbox_config: SandboxConfig,
    program: Program,
    stdin: bytes = b"",
    *,
    profile: str = "plain",
    time_limit_s: float = 6.0,
    judge_config: JudgeConfig | None = None,
) -> Outcome:
    """Run `program` sealed with `stdin`. A source that does not compile exits with 1 and says why on standard error.

    `judge_config` has the profiles that are not built in, and the settings of compilers.

    Raises:
        InputError: the profile or the language is unknown.
        HostError: this host lacks what the profile or the language needs.
        IsolationError: this host cannot isolate as the settings ask.
        SandboxFault: the sandbox failed, also on fresh cells.
    """
    environment = Environments(judge_config or JudgeConfig()).named(program.language, profile, "stdin")
    sandbox = open_sandbox(sandbox_config)
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _run_once(sandbox, sandbox_config, program, stdin, environment, time_limit_s)
            except SandboxFault:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("not reached")
    finally:
        sandbox.close()


def _run_once(
    sandbox: Sandbox,
    config: SandboxConfig,
    program: Program,
    stdin: bytes,
    environment: Environment,
    time_limit_s: float,
) -> Outcome:
    built = environment.build(sandbox, program)
    if isinstance(built, CompileError):
        return _refused(built.message)
    with sandbox.open(built.content, built.profile, sandbox_limits(config, time_limit_s), built.runner) as cell:
        return cell.run(stdin) if cell.compile_error is None else _refused(cell.compile_error)


def _refused(message: str) -> Outcome:
    return Outcome(Ended.EXITED, 1, None, b"", f"{message}\n".encode(), 0, 0, 0.0, 0.0, 0.0, message)
