"""Read rows of files and folders as published: JSON lines, JSON, Parquet, Arrow, and the folders of APPS.

Memory is bounded: a row at a time, none longer than `ROW_LIMIT`. An unreadable row is skipped with a reason; a damaged
file is an error, since its other rows are unknown.
"""

import fnmatch
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from autoclave.core.compressed import DAMAGED, damage, is_compressed, open_plain
from autoclave.core.errors import DataError, InputError
from autoclave.core.json import parse_object, shown
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers.row import RawRow, value_of_text

ROW_LIMIT = 256 << 20
"""Limit of bytes of one row, decompressed."""
_CHUNK = 8 << 20
"""Bytes of an array that are parsed at a time; a longer string is scanned again with each chunk."""
_BATCH = 16
"""Rows of a table in memory at a time."""
_LINES, _JSON, _TABLES = (".jsonl", ".ndjson"), (".json",), (".parquet", ".arrow")
_NOT_DATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Files that `datasets` writes beside its tables."""
_MARK = b"\xef\xbb\xbf"
_QUESTION = "question.txt"
"""The file that makes a folder a problem of APPS."""


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The files of a source. `files` are paths below `root`; problem folders of APPS are paths of folders."""

    root: Path
    files: Sequence[str]

    def digests(self) -> dict[str, str]:
        """Return the sha256 (hex) of each file by name, and of all problem folders together by their parent."""
        found: dict[str, str] = {}
        folders: dict[str, Any] = {}
        for name in self.files:
            path = self.root / name
            if path.is_dir():
                total = folders.setdefault(str(Path(name).parent), hashlib.sha256())
                for part in sorted(path.iterdir()):
                    if part.is_file():
                        total.update(f"{name}/{part.name} {digest_of(part)}\n".encode())
            else:
                found[name] = digest_of(path)
        return found | {name: total.hexdigest() for name, total in sorted(folders.items())}

    def rows(self) -> Iterator[RawRow | SkippedRow]:
        """Yield all rows, file by file.

        Raises InputError: a file is damaged, or does not hold rows in its format. ModuleNotFoundError: a library for
        the format is not installed.
        """
        for name in self.files:
            yield from _rows_of(self.root / name, name)


def raw_files(path: Path, patterns: Sequence[str] = ()) -> RawFiles:
    """Return the files of `path`: a file, or a folder of files or problem folders of APPS, by `patterns` if given.

    Raises InputError: it does not exist, or holds no readable file.
    """
    if path.is_file():
        if not _is_readable(path):
            raise InputError(f"{path}: must be one of {_forms()}, or a folder")
        return RawFiles(path.parent, [path.name])
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder")
    if (path / _QUESTION).is_file():
        return RawFiles(path, ["."])
    names = sorted(_names(path, path), key=_natural)
    if patterns:
        names = [name for name in names if any(fnmatch.fnmatch(Path(name).name, pattern) for pattern in patterns)]
    if not names:
        present = ", ".join(sorted(each.name for each in path.iterdir())[:8]) or "nothing"
        named = f" named {' or '.join(patterns)}" if patterns else ""
        raise InputError(f"{path}: holds no readable file{named} ({_forms()}); it holds: {present}")
    return RawFiles(path, names)


def _names(folder: Path, root: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            if (path / _QUESTION).is_file():
                yield str(path.relative_to(root))
            else:
                yield from _names(path, root)
        elif _is_readable(path) and path.name not in _NOT_DATA:
            yield str(path.relative_to(root))


def _natural(name: str) -> tuple[object, ...]:
    """Return a sort key that puts `test.jsonl` before `test2.jsonl` before `test10.jsonl`."""
    parts = re.findall(r"[0-9]+|[^0-9]", name)
    return tuple((1, int(part[:18]), part) if part[0] in "0123456789" else (0, 0, part) for part in parts)


def _is_readable(path: Path) -> bool:
    return _form(path) in (*_LINES, *_JSON) or path.suffix in _TABLES


def _form(path: Path) -> str:
    return Path(path.stem).suffix if is_compressed(path) else path.suffix


def _forms() -> str:
    return ", ".join((*_LINES, *_JSON, *_TABLES)) + "; lines and JSON also with .gz or .zst"


def digest_of(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows_of(path: Path, name: str) -> Iterator[RawRow | SkippedRow]:
    try:
        if path.is_dir():
            yield _problem_folder(path, name)
        elif path.suffix in _TABLES:
            yield from _table_rows(path, name)
        elif _form(path) in _LINES:
            yield from _line_rows(path, name)
        else:
            yield from _json_rows(path, name)
    except DAMAGED as error:
        raise InputError(f"{path}: {damage(path, error)}; fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _json_rows(path: Path, name: str) -> Iterator[RawRow | SkippedRow]:
    """Yield the rows of an array, of one object, or of an object per line: all have the same file ending."""
    with open_plain(path) as file:
        begin = file.readline(ROW_LIMIT + 1)
        while begin and not begin.strip():
            begin = file.readline(ROW_LIMIT + 1)
        if begin.removeprefix(_MARK).lstrip().startswith(b"["):
            yield from _array_rows(path, name)
        elif isinstance(_line_row(begin.removeprefix(_MARK), ""), RawRow):
            yield from _line_rows(path, name)
        elif len(whole := begin + file.read(ROW_LIMIT + 1)) > ROW_LIMIT:
            raise InputError(f"{path}: one JSON object of more than {ROW_LIMIT >> 20} MiB; give an array of rows")
        elif whole.strip():
            yield _whole_row(path, whole, name)


def _whole_row(path: Path, whole: bytes, name: str) -> RawRow:
    found = _line_row(whole.removeprefix(_MARK), name)
    if isinstance(found, SkippedRow):
        raise InputError(f"{path}: must be an array of objects, one object, or an object per line ({found.detail})")
    return found


def _line_rows(path: Path, name: str) -> Iterator[RawRow | SkippedRow]:
    with open_plain(path) as file:
        number = 0
        while line := file.readline(ROW_LIMIT + 1):
            number += 1
            place = f"{name}:{number}"
            if number == 1:
                line = line.removeprefix(_MARK)
            if len(line) > ROW_LIMIT:
                while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                    pass
                yield SkippedRow(place, "too_long", f"a row of more than {ROW_LIMIT >> 20} MiB")
            elif line.strip():
                yield _line_row(line, place)


def _line_row(line: bytes, place: str) -> RawRow | SkippedRow:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return SkippedRow(place, "not_utf8", f"{error.reason} at byte {error.start}")
    try:
        return RawRow(place, parse_object(text, place))
    except DataError as error:
        if "usable" in str(error):  # an integer with more digits than Python reads
            return _with_huge_integers(text, place)
        return SkippedRow(place, "not_json", str(error).removeprefix(f"{place}: "))


def _with_huge_integers(text: str, place: str) -> RawRow | SkippedRow:
    value = value_of_text(text)
    if not isinstance(value, dict):
        return SkippedRow(place, "not_json", f"expected a JSON object, found {shown(value)}")
    return RawRow(place, cast("dict[str, Any]", value))


def _array_rows(path: Path, name: str) -> Iterator[RawRow | SkippedRow]:
    import ijson

    number = 0
    try:
        with open_plain(path) as opened:
            file = _BoundedRows(path, opened)
            rows = ijson.items(file, "item", use_float=True, buf_size=_CHUNK)
            for number, value in enumerate(rows, start=1):
                file.num_bytes = 0
                place = f"{name}:{number}"
                if isinstance(value, dict):
                    yield RawRow(place, cast("dict[str, Any]", value))
                else:
                    yield SkippedRow(place, "not_json", f"expected a JSON object, found {shown(value)}")
    except (ijson.JSONError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: element {number + 1} of the array is not valid JSON ({error})") from None


class _BoundedRows:
    """A file whose rows may not exceed `ROW_LIMIT`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._begin = file.read(len(_MARK)).removeprefix(_MARK)
        self.num_bytes = 0
        """Bytes since the last row."""

    def read(self, size: int = -1) -> bytes:
        """See `BinaryIO`; only for sizes that are not negative."""
        if not size:  # ijson reads 0 bytes first, to see their type
            return b""
        content, self._begin = self._begin or self._file.read(size), b""
        self.num_bytes += len(content)
        if self.num_bytes > ROW_LIMIT:
            raise InputError(f"{self._path}: has a row of more than {ROW_LIMIT >> 20} MiB")
        return content


def _table_rows(path: Path, name: str) -> Iterator[RawRow | SkippedRow]:
    import pyarrow as arrow

    number = 0
    try:
        for batch in _batches(path):
            for start in range(0, batch.num_rows, _BATCH):
                for fields in batch.slice(start, _BATCH).to_pylist():
                    number += 1
                    yield RawRow(f"{name}:{number}", fields)
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: row {number + 1} cannot be read ({first_line(error)})") from None


def _batches(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            yield from file.iter_batches(batch_size=_BATCH, use_threads=False)
        return
    import pyarrow as arrow

    with arrow.memory_map(str(path)) as file:
        try:
            reader = arrow.ipc.open_stream(file)  # what `datasets` writes
        except arrow.ArrowInvalid:
            file.seek(0)
            reader = arrow.ipc.open_file(file)
            yield from map(reader.get_batch, range(reader.num_record_batches))
            return
        yield from reader


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _problem_folder(path: Path, name: str) -> RawRow | SkippedRow:
    """Return a row with the field `files`: the text of each file by its name."""
    place = path.name if name == "." else name
    files: dict[str, str] = {}
    for part in sorted(path.iterdir()):
        if not part.is_file():
            continue
        if part.stat().st_size > ROW_LIMIT:
            return SkippedRow(place, "too_long", f"{part.name} has more than {ROW_LIMIT >> 20} MiB")
        try:
            files[part.name] = part.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            return SkippedRow(place, "not_utf8", f"{part.name}: {error.reason} at byte {error.start}")
    return RawRow(place, {"problem": path.resolve().name, "files": files})
