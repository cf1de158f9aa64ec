"""`autoclave serve`."""

import contextlib
import datetime
import json
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import ServeConfig
from autoclave.core import InputError

_SCOPES = ("judge", "problems:write", "answers:read", "traces:read", "admin")
_SILENT_S = 60.0
_POSITIVE = click.FloatRange(0, min_open=True)


class _Serve(click.Group):
    """Group that takes settings and a recipe before the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = [place for place, word in enumerate(args) if word in self.commands]
        first = names[0] if names else len(args)
        settings = [word for word in args[:first] if not word.startswith("-")]
        ctx.meta["settings"] = tuple(settings)
        return super().parse_args(ctx, [word for word in args[:first] if word.startswith("-")] + args[first:])


@click.group(cls=_Serve, invoke_without_command=True, subcommand_metavar="[RECIPE] [KEY=VALUE]... [COMMAND]")
@click.option("--ray", "on_ray", is_flag=True, help="As a deployment of Ray Serve; short for ray={}.")
@click.pass_context
def serve(context: click.Context, on_ray: bool) -> None:
    """Judge programs over HTTP until SIGTERM or Ctrl-C.

    Without tokens, only this machine can connect. Accepted programs survive a crash and are judged after a restart.

    \b
    Settings: host, port, store, require_token, tls.*, admission.*, audit.*, ray.*, judge.*, sandbox.* and more.
    Example: autoclave serve port=8750 store=judge.sqlite
    """
    settings: tuple[str, ...] = context.meta["settings"]
    if context.invoked_subcommand:
        if settings:
            raise click.UsageError(f"{settings[0]}: settings must follow the command", context)
        return
    from autoclave.compose.serving import run_server

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config = resolve(ServeConfig, settings).config
    if on_ray and config.ray is None:
        config = resolve(ServeConfig, (*settings, "ray={}")).config
    with contextlib.suppress(KeyboardInterrupt):  # SIGTERM before it listens for signals
        run_server(config, lambda url: click.echo(f"Serving at {url}"))


@serve.group()
def token() -> None:
    """Create, list and revoke tokens of clients.

    Example: autoclave serve token list
    """


@token.command()
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(_SCOPES), help="Permission; may be given several times."
)
@click.option("--expires", default="90d", help="Lifetime: a number with s, m, h or d, or never.")
@click.option("--label", default="", help="A note, such as the name of its user.")
@click.option("--priority", type=click.IntRange(0, 9), help="Highest priority of its jobs; 7, or 9 with scope admin.")
@click.option("--queue", type=click.IntRange(1), help="Most of its programs that wait, below the server's limit.")
@click.option("--requests-per-s", type=_POSITIVE, help="Its requests per second, in place of the server's limit.")
@click.option("--cpu-s-per-hour", type=_POSITIVE, help="CPU seconds of its programs per hour of the clock (UTC).")
@click.option("--cpu-s-per-day", type=_POSITIVE, help="CPU seconds of its programs per day (UTC).")
@click.option("--json", "as_json", is_flag=True, help="Print the token and its record as JSON.")
@takes_settings
def create(
    scopes: tuple[str, ...], expires: str, label: str, as_json: bool, settings: tuple[str, ...], **limits: Any
) -> None:
    """Create a token and print it once: the store keeps only its hash.

    \b
    Settings: store.
    Example: autoclave serve token create --scope judge --scope problems:write --expires 30d store=judge.sqlite
    """
    from autoclave.service.tokens import Limits, Scope, create_token, seconds_of

    if not scopes:
        raise InputError(f"--scope: give at least one of {', '.join(_SCOPES)}")
    allowed = frozenset(map(Scope, scopes))
    text, record = create_token(label, allowed, time.time(), seconds_of(expires), Limits(**limits))
    with _store(settings) as store:
        store.add_token(record)
    click.echo(json.dumps({"token": text, **_plain(record)}, indent=2) if as_json else text)


@token.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@takes_settings
def list_tokens(as_json: bool, settings: tuple[str, ...]) -> None:
    """List all tokens by id, without their secrets.

    \b
    Settings: store.
    Example: autoclave serve token list store=judge.sqlite
    """
    with _store(settings) as store:
        records = store.tokens()
    if as_json:
        click.echo(json.dumps([_plain(record) for record in records], indent=2))
        return
    for record in records:
        row = _plain(record)
        state = "valid" if record.is_valid(time.time()) else "revoked" if record.is_revoked else "expired"
        expires = row["expires"] or "never"
        words = [*row["scopes"], *(f"{name}={limit:g}" for name, limit in row["limits"].items())]
        click.echo(f"{record.id}  {state:<8} expires {expires:<20} {' '.join(words)}  {record.label}".rstrip())


@token.command()
@click.argument("id")
@takes_settings
def revoke(id: str, settings: tuple[str, ...]) -> None:
    """Revoke a token at once. ID is the first word of its line in the list.

    \b
    Settings: store.
    Example: autoclave serve token revoke 1f0c9a3e store=judge.sqlite
    """
    with _store(settings) as store:
        if not store.revoke_token(id):
            raise InputError(f"{id}: no such token. Fix: use an id from `autoclave serve token list`")
    click.echo(f"{id} is revoked")


@serve.command(name="queue")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@takes_settings
def show_queue(as_json: bool, settings: tuple[str, ...]) -> None:
    """Show waiting and running programs and CPU time by client, and the servers.

    \b
    Settings: store.
    Example: autoclave serve queue store=judge.sqlite
    """
    from autoclave.service.store.records import ClientLoad

    now = time.time()
    with _store(settings) as store:
        labels = {token.id: token.label for token in store.tokens()}
        loads, used, servers = store.clients(), store.usage(now), store.servers()
    loads += [ClientLoad(id, 0, 0, now) for id in used if id not in {load.client for load in loads}]
    clients = [
        {
            "client": load.client,
            "label": labels.get(load.client, ""),
            "waiting": load.waiting,
            "running": load.running,
            "oldest_s": round(now - load.oldest, 1),
            "cpu_s": {"hour": used[load.client].hour_s, "day": used[load.client].day_s} if load.client in used else {},
        }
        for load in loads
    ]
    if as_json:
        click.echo(json.dumps({"clients": clients, "servers": [asdict(server) for server in servers]}, indent=2))
        return
    click.echo(f"{'client':<10}{'waiting':>9}{'running':>9}{'oldest':>10}{'CPU today':>12}  label")
    for row in clients:
        oldest, cpu = f"{row['oldest_s']:.0f} s", f"{row['cpu_s'].get('day', 0.0):.0f} s"
        line = f"{row['client']:<10}{row['waiting']:>9}{row['running']:>9}{oldest:>10}{cpu:>12}  {row['label']}"
        click.echo(line.rstrip())
    for server in servers:
        load = f"{server.slots} slots, {server.per_s:.1f} verdicts per s, seen {server.silent_s:.0f} s ago"
        click.echo(f"server {server.name or server.id}: {load}")


@serve.command()
@click.option("--client", help="Cancel all programs of this client: the id of its token.")
@click.option("--batch", help="Cancel the programs of a batch.")
@click.option("--job", help="Cancel one program.")
@takes_settings
def cancel(client: str | None, batch: str | None, job: str | None, settings: tuple[str, ...]) -> None:
    """Cancel programs that wait or run. Running servers notice it within `node_lease_s` / 3.

    \b
    Settings: store.
    Example: autoclave serve cancel --client 1f0c9a3e store=judge.sqlite
    """
    given = [(column, value) for column, value in (("client", client), ("batch", batch), ("id", job)) if value]
    if len(given) != 1:
        raise InputError("serve cancel: give one of --client, --batch and --job")
    with _store(settings) as store:
        click.echo(f"{len(store.cancel(store.unfinished(*given[0])))} programs are cancelled")


@serve.command()
@click.option("--older", help="Only verdicts that are older: a number with s, m, h or d.")
@takes_settings
def prune(older: str | None, settings: tuple[str, ...]) -> None:
    """Delete verdicts of requests that have ended, and expired problems. Servers do so after `keep_results_s`.

    \b
    Settings: store.
    Example: autoclave serve prune --older 1h store=judge.sqlite
    """
    from autoclave.service.tokens import seconds_of

    with _store(settings) as store:
        requests, problems = store.purge(time.time() - (seconds_of(older) or 0.0 if older else 0.0))
    click.echo(f"deleted {requests} requests with their verdicts, and {problems} problems")


@serve.command()
@click.argument("server")
@takes_settings
def drain(server: str, settings: tuple[str, ...]) -> None:
    """Shut a server down as SIGTERM does, and wait until it has ended. SERVER is its name in `autoclave serve queue`.

    \b
    Settings: store.
    Example: autoclave serve drain judge-7f9c:1 store=postgresql://judge@db/judge
    """
    with _store(settings) as store:

        def left() -> list[Any]:
            return [one for one in store.servers() if server in (one.id, one.name)]

        if not left():
            raise InputError(f"{server}: no such server. Fix: use a name from `autoclave serve queue`")
        store.end_server(left()[0].id)
        while found := left():
            if found[0].silent_s > _SILENT_S:
                raise InputError(f"{server}: no heartbeat for {_SILENT_S:g} s. Fix: see whether it still runs")
            time.sleep(0.5)
    click.echo(f"{server} has ended")


@serve.command()
@click.option("--problems", type=click.Path(path_type=Path), help="Problem file with solutions; samples by default.")
@click.option("--seconds", type=_POSITIVE, default=5.0, show_default=True, help="Seconds per kind of problem.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@takes_settings
def bench(problems: Path | None, seconds: float, as_json: bool, settings: tuple[str, ...]) -> None:
    """Measure how many programs this machine judges per second, by kind of problem, and the memory of a worker.

    \b
    Settings: judge.*, sandbox.*.
    Example: autoclave serve bench --seconds 10 judge.workers=4
    """
    from autoclave.compose.bench import SAMPLES, measure
    from autoclave.core import read_problems

    given = SAMPLES if problems is None else read_problems(problems)
    rates = list(measure(resolve(ServeConfig, settings).config, given, seconds))
    if not rates:
        raise InputError(f"{problems}: no problem has a solution that can be judged here. Fix: use others")
    if as_json:
        click.echo(json.dumps([asdict(rate) for rate in rates], indent=2))
        return
    for one in rates:
        speed = f"{one.per_s:.1f} programs per s, {one.per_s_and_worker:.1f} per worker, {1000 * one.cpu_s:.1f} ms CPU"
        memory = f"{one.worker_mb:.0f} MiB per worker, {one.program_mb:.0f} MiB per program"
        click.echo(f"{one.kind}: {speed}, {memory}; {one.num_accepted} of {one.num_judged} accepted")


def _store(settings: tuple[str, ...]) -> contextlib.closing[Any]:
    from autoclave.compose.service import open_store

    return contextlib.closing(open_store(resolve(ServeConfig, settings).config.store))


def _plain(record: Any) -> dict[str, Any]:
    return {
        "id": record.id,
        "label": record.label,
        "scopes": sorted(record.scopes),
        "created": _time(record.created),
        "expires": None if record.expires is None else _time(record.expires),
        "is_revoked": record.is_revoked,
        "limits": {name: limit for name, limit in asdict(record.limits).items() if limit is not None},
    }


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
