"""Settings: judges on other machines."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat

JobPriority = Annotated[int, Field(ge=0, le=9)]


class RemoteJudgeConfig(Config):
    """The servers that judge for this process (`autoclave serve`), and how they are asked."""

    urls: tuple[str, ...] = ()
    """Addresses of the servers, such as http://host:8750. Programs go where slots are free."""
    token_variable: str = ""
    """Environment variable that holds the token for the servers; empty: none, or that of `token_file`."""
    token_file: str = ""
    """File that holds the token for the servers, and nothing else; empty: none, or that of `token_variable`."""
    certificate_file: str = ""
    """Certificate (PEM) that the servers' own must be signed by; empty: what this machine trusts."""
    timeout_s: PositiveFloat = 30.0
    """Longest silence of a server, in seconds, before it counts as gone. A server that judges says so more often."""
    patience_s: PositiveFloat = 900.0
    """Seconds for which servers are waited for while none takes or judges programs: after a failure, during a failover
    of their database or a restart. The jobs are resumed. Then there is no verdict, and the fault names the server."""
    retries: NonNegative = 8
    """Number of retries of a program after a fault of the judge of a server, or after servers lost it while others took
    programs. A server that is busy is waited for instead."""
    deadline_s: PositiveFloat = 3600.0
    """Seconds from submission after which a program is not judged any more, here and by the server: no verdict."""
    programs_per_request: Positive = 64
    """Most programs in one request."""
    priority: JobPriority = 4
    """Priority of programs of this process: 9 goes first, 0 last."""

    def broken_rules(self) -> Iterator[str]:
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                yield f"urls: {url!r} must begin with http:// or https://"
            if self.urls.count(url) > 1:
                yield f"urls: {url!r} is given twice; give it once"
        if self.token_variable and self.token_file:
            yield "token_variable and token_file: both are set; set the one that holds the token"
