"""Files and folders as published: every format, and errors in them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers import raw_files
from autoclave.problems.readers.row import RawRow

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `curate`")
zstandard = pytest.importorskip("zstandard", reason="needs the extra `curate`")
pytest.importorskip("ijson", reason="needs the extra `curate`")

ROWS = [{"id": 1, "text": "ä"}, {"id": 2, "text": None}, {"id": 3, "text": "x\r\ny"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def rows(path: Path) -> list[Any]:
    return [row.fields if isinstance(row, RawRow) else row.reason for row in raw_files(path).rows()]


def written(path: Path) -> Path:
    """ROWS in the form that the name says."""
    name = path.name
    text = LINES if "jsonl" in name or "ndjson" in name else json.dumps(ROWS, indent=1)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    elif name.endswith(".parquet"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=2)
    elif name.endswith(".arrow"):
        table = pyarrow.Table.from_pylist(ROWS)
        make = pyarrow.ipc.new_stream if name.startswith("stream") else pyarrow.ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text(text)
    return path


FORMS = (
    "a.jsonl",
    "a.ndjson",
    "a.jsonl.gz",
    "a.jsonl.zst",
    "a.json",
    "a.json.gz",
    "a.parquet",
    "stream.arrow",
    "file.arrow",
)


@pytest.fixture(autouse=True)
def _parquet() -> None:
    import pyarrow.parquet  # noqa: F401


@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_the_same_rows(tmp_path, name):
    path = written(tmp_path / name)
    assert rows(path) == ROWS
    assert [row.place for row in raw_files(path).rows() if isinstance(row, RawRow)] == [
        f"{name}:{number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + LINES, "\n" + LINES, LINES.replace("\n", "\r\n"), LINES.rstrip("\n"), "\ufeff" + json.dumps(ROWS)],
)
def test_marks_blank_lines_and_line_ends_do_not_matter(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode())
    assert rows(path) == ROWS


def test_one_object_is_one_row(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps({"problem": "What?", "level": 5}, indent=2))
    assert rows(tmp_path / "1.json") == [{"problem": "What?", "level": 5}]


def test_integers_of_any_size_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": {2**70}, "b": {"9" * 5000}}}\n')
    assert rows(path) == [{"a": 2**70, "b": "9" * 5000}]


def test_a_folder_is_read_file_by_file_in_the_order_of_numbers(tmp_path):
    for name in ("test.jsonl", "test2.jsonl", "test10.jsonl"):
        (tmp_path / name).write_text('{"a": 1}\n')
    for name in ("README.md", ".hidden.jsonl", "dataset_info.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"a": 2}\n')
    found = raw_files(tmp_path)
    assert found.files == ["data/train.jsonl", "test.jsonl", "test2.jsonl", "test10.jsonl"]
    assert set(found.digests()) == set(found.files)
    assert raw_files(tmp_path, ["test.jsonl", "test2.jsonl"]).files == ["test.jsonl", "test2.jsonl"]


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    for number in range(3):
        folder = tmp_path / "train" / f"{number:04d}"
        folder.mkdir(parents=True)
        (folder / "question.txt").write_text(f"Question {number}")
        (folder / "input_output.json").write_text('{"inputs": ["1"], "outputs": ["1"]}')
    return tmp_path


@pytest.mark.parametrize("below", ["", "train"])
def test_problem_folders_are_rows(apps, below):
    found = raw_files(apps / below)
    texts = [row.fields["files"]["question.txt"] for row in found.rows() if isinstance(row, RawRow)]
    assert texts == ["Question 0", "Question 1", "Question 2"]
    before = found.digests()
    (apps / "train" / "0001" / "question.txt").write_text("Another")
    assert raw_files(apps / below).digests() != before


def test_one_problem_folder_is_a_row(apps):
    (row,) = raw_files(apps / "train" / "0001").rows()
    assert isinstance(row, RawRow)
    assert row.fields["problem"] == "0001"


def test_malformed_lines_are_skipped_with_a_reason(tmp_path):
    lines = [b'{"a": 1}', b"{broken", b"[1, 2]", b'{"a": "\xff\xfe"}', b"[" * 100_000, b'{"a": 2}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    found = list(raw_files(tmp_path / "a.jsonl").rows())
    assert rows(tmp_path / "a.jsonl") == [{"a": 1}, "not_json", "not_json", "not_utf8", "not_json", {"a": 2}]
    assert [each.row for each in found if isinstance(each, SkippedRow)] == [
        f"a.jsonl:{number}" for number in (2, 3, 4, 5)
    ]


def test_text_of_a_problem_folder_in_another_encoding_is_named(apps):
    (apps / "train" / "0001" / "question.txt").write_bytes("Größe".encode("latin-1"))
    assert [row for row in rows(apps) if isinstance(row, str)] == ["not_utf8"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("name", [name for name in FORMS if not name.endswith(("jsonl", "ndjson"))])
def test_a_file_that_is_cut_off_is_an_error_that_names_it(tmp_path, name):
    path = written(tmp_path / name)
    cut(path)
    with pytest.raises(InputError, match=name):
        list(raw_files(path).rows())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"nonsense", "must be an array of objects"),
        ("a.json", '[{"a": 1}]'.encode("utf-16"), "must be an array of objects"),
        ("a.parquet", b"PAR1nonsense", "cannot be read"),
        ("a.arrow", b"nonsense", "cannot be read"),
        ("a.jsonl.gz", b"nonsense", "damaged gzip"),
        ("a.jsonl.zst", b"nonsense", "damaged zstd"),
        ("a.pickle", b"nonsense", "must be one of"),
        ("a.tar.gz", b"nonsense", "must be one of"),
    ],
)
def test_files_of_unknown_formats_are_errors(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(raw_files(tmp_path / name).rows())


def test_a_source_that_is_not_there_or_empty_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        raw_files(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no readable file"):
        raw_files(tmp_path)
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"named test\.jsonl"):
        raw_files(tmp_path, ["test.jsonl"])


BOMB = """
import resource, sys
from autoclave.problems.readers import raw_files
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))
from pathlib import Path
from autoclave.core import InputError
try:
    print([getattr(row, "reason", "row") for row in raw_files(Path(sys.argv[1])).rows()])
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "begin", "answer"),
    [
        ("bomb.jsonl.gz", b'{"a": "', "['too_long', 'row']"),
        ("bomb.json.gz", b'[{"a": "', "has a row of more than 256 MiB"),
    ],
)
def test_an_archive_bomb_is_one_skipped_row_within_bounded_memory(tmp_path, name, begin, answer):
    path = tmp_path / name
    zeros = 100 * gzip.compress(b"0" * (15 << 20))  # members of a file may follow each other
    path.write_bytes(gzip.compress(begin) + zeros + gzip.compress(b'"}\n{"a": 1}\n'))
    ended = subprocess.run(
        [sys.executable, "-c", BOMB, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert answer in ended.stdout, ended.stderr
