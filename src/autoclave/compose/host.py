"""The judge that settings describe, and what this host offers for it. Free of tensor libraries."""

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError
from autoclave.judge import Judge, LocalJudge, validate_languages
from autoclave.sandbox import HostCheck as HostCheck
from autoclave.sandbox import open_sandbox, validate_backends, without_pause_process
from autoclave.sandbox import validate_host as list_host_checks


def build_judge(judge: JudgeConfig, sandbox: SandboxConfig) -> Judge:
    """The judge that the settings describe.

    Raises:
        IsolationError: this host, or a server, cannot give the level of isolation asked for.
        HostError: no server answers.
        ConfigError: a server does not take the token.
    """
    if judge.backend == "remote":
        from autoclave.service.client import RemoteJudge  # needs the extra `serve`

        return RemoteJudge(judge.remote, minimum_level=sandbox.minimum_level)
    return LocalJudge(sandbox, judge)


@without_pause_process()
def validate_host(config: SandboxConfig, judge: JudgeConfig) -> tuple[list[HostCheck], str | None, str]:
    """Isolation of this host: the checks, the level of isolation that results, and why none does."""
    checks = [*list_host_checks(), *validate_backends(config), *validate_languages(judge)]
    try:
        sandbox = open_sandbox(config)
    except IsolationError as error:
        return checks, None, str(error)
    level = sandbox.level
    sandbox.close()
    return checks, level, ""
