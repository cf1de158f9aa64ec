"""Rows of a set on the Hugging Face hub, streamed through `datasets`. No code of the set is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.problems.candidate import Unread
from autoclave.problems.readers.row import Row

_DEFAULT_SPLITS = ("train", "test", "validation")


@dataclass(frozen=True, slots=True)
class HubSet:
    """A split of a set at one commit: what was asked for, and the commit that it was found to be."""

    name: str
    config: str
    split: str
    revision: str
    rows: Callable[[], Iterator[Row | Unread]]


def hub_set(address: str, revision: str, files: Sequence[str] = ()) -> HubSet:
    """A set by its address `OWNER/NAME`, `OWNER/NAME:CONFIG` or `OWNER/NAME:CONFIG:SPLIT`.

    Without a split it is `train`, or the first there is of `test` and `validation`. `files` are names of JSON lines in
    the set that are read in place of its tables: sets that came with a loading script have no others.

    Raises:
        HostError: `datasets` is not installed, or the hub cannot be reached.
        InputError: there is no such set, configuration or split.
    """
    name, _, rest = address.partition(":")
    config, _, split = rest.partition(":")
    builder = _opened(address, name, config, revision, files)
    splits = list(builder.config.data_files or ())
    chosen = split or next((each for each in _DEFAULT_SPLITS if each in splits), splits[0])
    if chosen not in splits:
        raise InputError(f"hub = {address!r}: has no split {chosen!r}; it has {', '.join(splits)}")

    def rows() -> Iterator[Row | Unread]:
        for number, fields in enumerate(builder.as_streaming_dataset(split=chosen), start=1):
            yield Row(f"{chosen}:{number}", fields)

    return HubSet(name, builder.config.name, chosen, _revision_of(builder, chosen), rows)


def _opened(address: str, name: str, config: str, revision: str, files: Sequence[str]) -> Any:
    try:
        import datasets
    except ModuleNotFoundError:
        raise HostError(
            f"hub = {address!r}: needs the library `datasets`. Fix: {install_command('curate')}, or give path"
        ) from None
    try:
        if files:
            root = name if name.startswith(("/", ".")) else f"hf://datasets/{name}{f'@{revision}' if revision else ''}"
            return datasets.load_dataset_builder("json", data_files={"test": [f"{root}/{file}" for file in files]})
        return datasets.load_dataset_builder(name, config or None, revision=revision or None)
    except (ConnectionError, TimeoutError) as error:
        raise HostError(f"hub = {address!r}: the hub cannot be reached ({_first_line(error)})") from None
    except (ValueError, FileNotFoundError, RuntimeError, OSError) as error:
        raise InputError(f"hub = {address!r}: {_first_line(error)}") from None


def _revision_of(builder: Any, split: str) -> str:
    """The commit that the files of a split are of; of a folder on this machine, when its files were written."""
    origins = {origin[-1] for origin in builder.config.data_files[split].origin_metadata if origin}
    return " ".join(sorted(origins)) or str(builder.hash)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]
