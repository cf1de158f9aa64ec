"""The options that name a vault and limit a key, and the vault that they name."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.core import InputError

if TYPE_CHECKING:
    from autoclave.runtime.vault import Vault
    from autoclave.runtime.vault.vault import KeySource

FILE = click.Path(path_type=Path)
PASSPHRASE_FILE = "AUTOCLAVE_VAULT_PASSPHRASE_FILE"


def in_vault(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--vault` and `--key`."""
    command = click.option(
        "--key",
        type=click.Choice(("passphrase", "file")),
        default="file",
        show_default=True,
        help=f"How it is locked: a passphrase (from the file that {PASSPHRASE_FILE} names, or asked for) or a key file "
        "beside it.",
    )(command)
    return click.option(
        "--vault", "path", type=FILE, help="The file.  [default: autoclave/vault in the user's folder of data]"
    )(command)


def trusting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--trust`."""
    return click.option("--trust", type=FILE, help="Certificates that the provider is verified by, in PEM.")(command)


def limited(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--host`, `--method`, `--path` and `--allow-private`."""
    for name, argument, told in (
        ("--path", "paths", "Pattern of paths that may receive the key.  [default: /**]"),
        ("--method", "methods", "HTTP method that may use the key.  [default: all]"),
        ("--host", "hosts", "Host that may receive the key; may be given several times."),
    ):
        command = click.option(name, argument, multiple=True, help=told)(command)
    return click.option("--allow-private", is_flag=True, help="Allow hosts on a private network.")(command)


def limits_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a secret in the options of `limited`, as far as they are given."""
    settings = {name: given[name] for name in ("hosts", "methods", "paths") if given[name]}
    return {**settings, **({"allows_private": True} if given["allow_private"] else {})}


def opened_vault(path: Path | None, key: str, record: Any = None) -> "Vault":
    """The vault; from here on no core of this process is dumped."""
    from autoclave.runtime.vault import Vault
    from autoclave.runtime.vault.vault import forbid_core_dumps

    forbid_core_dumps()
    place = path or default_vault()
    return Vault(place, source_of(place, key), record)


def default_vault() -> Path:
    """The file of the vault when none is given."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(data) / "autoclave" / "vault"


def source_of(path: Path, key: str) -> "KeySource":
    from autoclave.runtime.vault import KeyFile, Passphrase

    if key == "file":
        return KeyFile.beside(path)
    if given := os.environ.get(PASSPHRASE_FILE):
        try:
            return Passphrase(Path(given).read_text(encoding="utf-8").rstrip("\n"))
        except OSError as error:
            raise InputError(f"{PASSPHRASE_FILE} {given}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise InputError(f"{PASSPHRASE_FILE} {given}: must be UTF-8") from None
    if not sys.stdin.isatty():
        raise InputError(f"vault: no terminal to ask for the passphrase; name a file with it in {PASSPHRASE_FILE}")
    return Passphrase(click.prompt("Passphrase", hide_input=True, err=True))


def value_given(what: str = "Key") -> str:
    """A secret from standard input, or from the terminal without an echo."""
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, err=True))
    try:
        given = sys.stdin.buffer.read().decode().strip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"act vault: the {what.lower()} must be UTF-8") from None
    if not given:
        raise InputError(
            f"act vault: standard input has no {what.lower()}. Fix: printenv NAME | autoclave act vault ..."
        )
    return given
