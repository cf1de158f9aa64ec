"""`autoclave act connect`: databases and services beside the folder, and the vault with their keys."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.common import FILE, on_state
from autoclave.cli.act.opened_vault import default_vault, opened_vault
from autoclave.core import InputError
from autoclave.core.json import nearest, validated

if TYPE_CHECKING:
    from autoclave.config import Config
    from autoclave.runtime.vault import Vault


@click.group(no_args_is_help=True)
def connect() -> None:
    """Connect databases and services for actions, besides the folder. Each action still needs a grant.

    Settings are in `connections.yaml` of the state folder. Keys are not: settings name a secret of the vault.

    \b
    Example: autoclave act connect list --root project
    """


@connect.command()
@click.argument("database")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@on_state
def database(database: str, settings: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Connect DATABASE, or change its settings: engine, path, host, port, dbname, user, role, password_secret ...

    \b
    Example: autoclave act connect database shop engine=sqlite path=shop.db --root project
    """
    _put("databases", database, settings, root, state)


@connect.command()
@click.argument("service")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@on_state
def service(service: str, settings: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Connect SERVICE, or change its settings: base_url, catalogue, secret, proof_days, queue_up_to, queue_s ...

    \b
    Example: autoclave act connect service notes base_url=https://notes.example catalogue=kinto --root project
    """
    _put("services", service, settings, root, state)


@connect.command()
@click.argument("manager")
@click.argument("settings", nargs=-1, metavar="KEY=VALUE...")
@on_state
def manager(manager: str, settings: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Connect MANAGER, the entry point of an installed package in `autoclave.managers`, or change its settings.

    \b
    Example: autoclave act connect manager json_values path=values.json --root project
    """
    from autoclave.config import parse_override
    from autoclave.core.plugins import find_plugin

    find_plugin("autoclave.managers", manager, "act connect manager")
    given = {each.path: each.value for each in map(parse_override, settings)}
    given |= {"path": str(Path(str(given["path"])).resolve())} if "path" in given else {}
    with _changing(root, state) as told:
        told.setdefault("managers", {}).setdefault(manager, {}).update(given)


@connect.command()
@click.argument("path", type=FILE, required=False)
@click.option(
    "--key",
    type=click.Choice(("passphrase", "file")),
    default="file",
    show_default=True,
    help="How the vault is unlocked.",
)
@on_state
def vault(path: Path | None, key: str, root: Path, state: Path | None) -> None:
    """Use the keys of the vault at PATH (by default that of `act vault`) for services, databases and commands.

    \b
    Example: autoclave act connect vault --root project
    """
    from autoclave.core.files import existing_file

    if not (chosen := path or default_vault()).exists():
        raise InputError(f"vault {chosen}: there is none yet. Fix: `autoclave act vault add SERVICE` makes one")
    place = existing_file(chosen, "vault").resolve()
    with _changing(root, state, opened_vault(place, key)) as told:
        told["vault"] = {"path": str(place), "key": key}


@connect.command()
@click.argument("file", type=FILE)
@on_state
def trust(file: Path, root: Path, state: Path | None) -> None:
    """Verify services and token providers by the certificates in FILE (PEM), in place of the system's.

    \b
    Example: autoclave act connect trust company-ca.pem --root project
    """
    from autoclave.runtime.keys import trusting

    trusting(file)
    with _changing(root, state) as told:
        told["trust"] = str(file.resolve())


@connect.command()
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@on_state
def model(settings: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Connect a model that proposes compensating requests where none is known: endpoint, name, secret.

    A proposal applies only to what the action itself made. Its result is read back, and a wrong one is never used
    again.

    \b
    Example: autoclave act connect model endpoint=http://127.0.0.1:8000/v1 name=qwen --root project
    """
    from autoclave.runtime.connections import ModelPlace

    with _changing(root, state) as told:
        told["model"] = {**told.get("model", {}), **_given(settings, ModelPlace)}
        _require_secret(told, told["model"].get("secret"))


@connect.command(name="list")
@on_state
def list_connections(root: Path, state: Path | None) -> None:
    """List connections, as YAML.

    \b
    Example: autoclave act connect list --root project
    """
    import yaml

    from autoclave.runtime.connections import load_connections
    from autoclave.runtime.opening import alone_on

    with alone_on(root, state) as place:
        told = load_connections(place).model_dump(mode="json", exclude_defaults=True)
    if told:
        click.echo(yaml.safe_dump(told, sort_keys=True), nl=False)


@connect.command()
@click.argument("names", nargs=-1, required=True)
@on_state
def remove(names: tuple[str, ...], root: Path, state: Path | None) -> None:
    """Disconnect databases, services and managers by their names, or `vault`, `trust` or `model`.

    Actions on a database or service cannot be undone until it is connected again.

    \b
    Example: autoclave act connect remove shop --root project
    """
    with _changing(root, state, is_removal=True) as told:
        groups = [told[each] for each in ("databases", "services", "managers") if each in told]
        single = told.keys() & {"vault", "trust", "model"}
        known = single.union(*groups)
        if unknown := [each for each in names if each not in known]:
            raise InputError(f"act connect remove {unknown[0]}: is not connected; connected are {sorted(known)}")
        for name in set(names):
            for group in (told, *groups) if name in single else groups:
                group.pop(name, None)


def _put(kind: str, key: str, settings: tuple[str, ...], root: Path, state: Path | None) -> None:
    from autoclave.runtime.connections import Connections
    from autoclave.runtime.databases.engine import open_engine
    from autoclave.runtime.databases.settings import DatabaseConnection
    from autoclave.runtime.rest.connection import ServiceConnection
    from autoclave.runtime.rest.loading import load_catalogue

    form = DatabaseConnection if kind == "databases" else ServiceConnection
    with _changing(root, state) as told:
        given = told.setdefault(kind, {}).setdefault(key, {})
        given.update(_given(settings, form))
        if kind == "services" and given.get("catalogue"):
            load_catalogue(str(given["catalogue"]))
        if kind == "databases":
            connections = validated(Connections, {kind: {key: given}}, "act connect")
            if connections.databases[key].path:  # a file must be a database; a server may be away, and is not asked
                open_engine(key, connections.databases[key], "").close()
        _require_secret(told, given.get("secret" if kind == "services" else "password_secret"))


def _given(settings: Iterable[str], form: "type[Config]") -> dict[str, Any]:
    """Settings of a form by their names. Files are named whole, since the folder is another the next time."""
    from autoclave.config import parse_override
    from autoclave.runtime.rest.connection import is_file_name

    found: dict[str, Any] = {}
    for setting in settings:
        name = setting.partition("=")[0]
        if name not in form.model_fields:
            fix = nearest(name, list(form.model_fields))
            raise InputError(f"act connect: {name[:60]!r}: no such setting; {fix}")
        override = parse_override(setting)
        is_text = form.model_fields[name].annotation is str  # `dbname=0` is the text as it stands there
        found[override.path] = setting.partition("=")[2].strip() if is_text else override.value
    for name in ("path", "catalogue"):
        if name in found and (name == "path" or is_file_name(str(found[name]))):
            found[name] = str(Path(str(found[name])).resolve())
    return found


def _require_secret(told: dict[str, Any], name: object) -> None:
    """Raise InputError if the vault that is connected lacks a secret; say if there is no vault yet."""
    if not name or not isinstance(name, str):
        return
    if not (vault := told.get("vault")):
        click.echo(f"secret {name}: no vault is connected yet; `act connect vault` connects one", err=True)
        return
    names = opened_vault(Path(vault["path"]), vault.get("key", "file")).names()
    if name not in names:
        fix = nearest(name, names) if names else "it is empty"
        raise InputError(
            f"secret {name}: the vault {vault['path']} has none; {fix}. Fix: autoclave act vault add {name}"
        )


def _changing(
    root: Path, state: Path | None, vault: "Vault | None" = None, *, is_removal: bool = False
) -> AbstractContextManager[dict[str, Any]]:
    from autoclave.act.connecting import changing_connections

    return changing_connections(root, state, vault, where="act connect", is_removal=is_removal)
