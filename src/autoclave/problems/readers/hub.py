"""Rows of a set on the Hugging Face hub, streamed through `datasets`. No code of the set is run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers.raw_files import first_line
from autoclave.problems.readers.row import RawRow

_DEFAULT_SPLITS = ("train", "test", "validation")


@dataclass(frozen=True, slots=True)
class HubSet:
    """A split of a set, and the commit that it was resolved to."""

    name: str
    config: str
    split: str
    revision: str
    rows: Callable[[], Iterator[RawRow | SkippedRow]]


def hub_set(address: str, revision: str, files: Sequence[str] = ()) -> HubSet:
    """Open a set by its address `OWNER/NAME`, `OWNER/NAME:CONFIG` or `OWNER/NAME:CONFIG:SPLIT`.

    The default split is the first of `train`, `test` and `validation`. `files` are names of JSON lines in the set that
    are read in place of its tables: sets with a loading script have no tables.

    Raises HostError: `datasets` is not installed, or the hub cannot be reached. InputError: the set, configuration or
    split does not exist.
    """
    name, _, rest = address.partition(":")
    config, _, split = rest.partition(":")
    builder = _opened(address, name, config, revision, files)
    splits = list(builder.config.data_files or ())
    chosen = split or next((each for each in _DEFAULT_SPLITS if each in splits), splits[0])
    if chosen not in splits:
        raise InputError(f"hub = {address!r}: has no split {chosen!r}; it has {', '.join(splits)}")

    def rows() -> Iterator[RawRow | SkippedRow]:
        for number, fields in enumerate(builder.as_streaming_dataset(split=chosen), start=1):
            yield RawRow(f"{chosen}:{number}", fields)

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
        raise HostError(f"hub = {address!r}: the hub cannot be reached ({first_line(error)})") from None
    except (ValueError, FileNotFoundError, RuntimeError, OSError) as error:
        raise InputError(f"hub = {address!r}: {first_line(error)}") from None


def _revision_of(builder: Any, split: str) -> str:
    """Return the commit of the files of a split; of a local folder, their times."""
    origins = {origin[-1] for origin in builder.config.data_files[split].origin_metadata if origin}
    return " ".join(sorted(origins)) or str(builder.hash)
