"""Settings of the judge as a service."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegative, NonNegativeFloat, Positive, PositiveFloat
from autoclave.config.languages import BUILT_IN_PROFILES
from autoclave.config.sandbox import JudgeConfig, SandboxConfig

Port = Annotated[int, Field(ge=0, le=65535)]


def is_database(store: str) -> bool:
    """Return whether a store is the address of a database, not a file."""
    return store.startswith(("postgresql://", "postgres://"))


class TlsConfig(Config):
    """Encryption by the server itself, for places without a proxy that does it."""

    certificate_file: str = ""
    """The server's certificate with those that signed it (PEM); empty: no encryption."""
    key_file: str = ""
    """The private key of the certificate (PEM)."""

    def broken_rules(self) -> Iterator[str]:
        if bool(self.certificate_file) != bool(self.key_file):
            names = ("certificate_file", "key_file")
            given, missing = names if self.certificate_file else names[::-1]
            yield f"{given} is set and {missing} is not; set both, or none for no encryption"


class AuditConfig(Config):
    """The record of who ran what: one JSON line per action, with hashes in place of programs."""

    file: str = ""
    """File that lines are appended to; empty: `audit.jsonl` beside the store, or here if that is a database."""
    sources: bool = False
    """Record the text of programs too."""


class AdmissionConfig(Config):
    """Limits on the requests of one client and of all; requests beyond them get status 413 or 429."""

    queue_limit: Positive = 20_000
    """Most programs that wait, of all clients together."""
    client_queue_limit: Positive = 10_000
    """Most programs that wait, of one client."""
    batch_limit: Positive = 4096
    """Most programs in one request."""
    request_limit_mb: PositiveFloat = 64.0
    """Size of a request with programs, after decompression, in MiB."""
    upload_limit_mb: PositiveFloat = 4096.0
    """Size of one upload of problems, after decompression, in MiB. It is read line by line."""
    line_limit_mb: PositiveFloat = 256.0
    """Size of one problem, in MiB."""
    requests_per_s: NonNegativeFloat = 0.0
    """Requests of one client per second, on average; 0 means any number."""
    request_burst: Positive = 200
    """Requests of one client that may come at once before `requests_per_s` counts."""
    connections: Positive = 8192
    """Connections at a time. A server takes fewer where half of the file descriptors that it may open are fewer."""
    connections_per_address: Positive = 4096
    """Connections of one address at a time: a proxy is one address."""
    header_s: PositiveFloat = 10.0
    """Seconds in which the header of a request must arrive, or a connection be encrypted."""
    body_s: PositiveFloat = 30.0
    """Seconds for which the body of a request may arrive at less than 1 KiB per second."""
    concurrent_runs: NonNegative = 0
    """Free-form runs at a time; 0 means as many as the judge has workers."""
    waiting_runs: NonNegative = 10_000
    """Runs and traces of `/v1` that may wait for their turn; those of other protocols wait without a limit."""

    @property
    def largest_batch(self) -> int:
        """Most programs in one request of which all can ever be accepted."""
        return min(self.batch_limit, self.client_queue_limit)

    def broken_rules(self) -> Iterator[str]:
        if self.client_queue_limit > self.queue_limit:
            yield f"client_queue_limit = {self.client_queue_limit}: must not exceed queue_limit = {self.queue_limit}"
        if self.line_limit_mb > self.upload_limit_mb:
            yield f"line_limit_mb = {self.line_limit_mb}: must not exceed upload_limit_mb = {self.upload_limit_mb}"
        if self.request_burst != 200 and not self.requests_per_s:
            yield "request_burst is ignored: there is no rate; set requests_per_s, or remove it"


Protocol = Literal["sandbox_fusion", "piston"]


class CompatibleConfig(Config):
    """Protocols of other sandboxes, for clients that speak nothing else."""

    protocols: tuple[Protocol, ...] = ()
    """Protocols that are spoken too, at the same address: `sandbox_fusion`, `piston`."""
    profile: str = "plain"
    """Interpreter of Python programs that come by these protocols: `plain`, or another profile of the judge."""
    keep_problems_s: PositiveFloat = 86400.0
    """Seconds for which tests that came with a submission are kept after they were last sent."""

    def broken_rules(self) -> Iterator[str]:
        if not self.protocols and self.profile != "plain":
            yield "profile is ignored: no protocol is on; set protocols, or remove it"


class RayServeConfig(Config):
    """Servers as replicas in a Ray cluster: as many as there is work for."""

    min_replicas: Positive = 1
    """Fewest servers."""
    max_replicas: Positive = 4
    """Most servers."""
    ongoing_requests: PositiveFloat = 1.0
    """Requests that one server has at a time on average; with more there are more servers, with fewer fewer. A judge on
    servers keeps up to 16 programs for each slot of all of them under way, `judge.remote.programs_per_request` in one
    request."""
    upscale_delay_s: PositiveFloat = 10.0
    """Seconds for which there must be too many requests before a server is added."""
    downscale_delay_s: PositiveFloat = 120.0
    """Seconds for which there must be too few requests before a server ends."""
    proxies: Literal["nodes", "head"] = "nodes"
    """Nodes that take requests: every node of the cluster that has a server, or on its head alone."""

    def broken_rules(self) -> Iterator[str]:
        if self.min_replicas > self.max_replicas:
            yield f"min_replicas = {self.min_replicas}: must not exceed max_replicas = {self.max_replicas}"


class ServeConfig(Config):
    """The judge as a service over HTTP (`autoclave serve`)."""

    host: str = "127.0.0.1"
    """Address to listen on. Other machines reach 0.0.0.0 or the machine's own; that needs `require_token`."""
    port: Port = 8750
    """Port to listen on; 0: any that is free."""
    store: str = "autoclave-serve.sqlite"
    """Store of problems, tokens and jobs. A file (SQLite), for one server; it is made if it is not there. Or a
    database that several servers share: postgresql://USER@HOST/DATABASE, with the password in PGPASSWORD or
    ~/.pgpass."""
    node_lease_s: PositiveFloat = 15.0
    """Seconds after which a server that shares the store and gives no sign of life is taken for dead, and
    the others judge what it had."""
    require_token: bool = False
    """Require a token of every client (`autoclave serve token create`). Without, every user of this machine may
    do everything."""
    tls: TlsConfig = TlsConfig()
    """Encryption."""
    admission: AdmissionConfig = AdmissionConfig()
    """Limits of what clients may ask for."""
    audit: AuditConfig = AuditConfig()
    """Audit log."""
    access_log: str = ""
    """File to which a JSON line per request is appended: client, path, status, seconds, id; empty: none."""
    compatible: CompatibleConfig = CompatibleConfig()
    """Protocols of other sandboxes."""
    ray: RayServeConfig | None = None
    """Run as a deployment of Ray Serve, in the cluster that RAY_ADDRESS names or that runs on this machine, or in one
    that is started; `--ray` is short for ray={}. Needs a database, and `judge.workers`."""
    drain_s: NonNegativeFloat = 30.0
    """Seconds that programs which are being judged may take to end after SIGTERM. What waits is judged after the next
    start."""
    keep_results_s: PositiveFloat = 86400.0
    """Seconds for which verdicts and idempotency keys are kept, from the last verdict of a request."""
    cached_problems_mb: Positive = 512
    """Memory for problems that are in use, in MiB of their JSON text."""
    judge: JudgeConfig = JudgeConfig()
    """Judging."""
    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    @property
    def audit_file(self) -> Path:
        """The record of who ran what."""
        beside = Path() if is_database(self.store) else Path(self.store).parent
        return Path(self.audit.file) if self.audit.file else beside / "audit.jsonl"

    @property
    def shown_store(self) -> str:
        """The store as messages name it: an address may hold a password."""
        return "postgresql://..." if is_database(self.store) else self.store

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def broken_rules(self) -> Iterator[str]:
        if not self.is_local and not self.require_token:
            yield (
                f'host = "{self.host}": other machines could run programs here without a token; set '
                "require_token=true, or host=127.0.0.1"
            )
        if "://" in self.store and not is_database(self.store):
            yield "store: an address must begin with postgresql://; anything else is the name of a file"
        if self.ray and not is_database(self.store):
            yield "ray: a store in a file has one server; set store=postgresql://USER@HOST/DATABASE"
        if self.ray and not self.judge.workers:
            yield (
                "ray: judge.workers must say how many programs a server judges at a time; it asks Ray for as many CPUs"
            )
        if self.node_lease_s != 15.0 and not is_database(self.store):
            yield "node_lease_s is ignored: a store in a file has one server; remove it, or use PostgreSQL"
        known = (*BUILT_IN_PROFILES, *self.judge.profiles)
        if self.compatible.profile not in known:
            yield f'compatible.profile = "{self.compatible.profile}": must be one of {", ".join(known)}'
        if self.judge.backend != "local":
            yield f"judge.backend = {self.judge.backend}: a server judges on its own machine; use local"
