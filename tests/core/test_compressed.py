"""Compressed files are read as what they hold, and one that is cut off anywhere is an error."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import DataError
from autoclave.core.compressed import DAMAGED, open_plain
from autoclave.core.files import read_jsonl

PACK = {".gz": lambda data: gzip.compress(data, mtime=0), ".zst": zstandard.compress, "": bytes}


@pytest.mark.parametrize("suffix", PACK)
@given(parts=st.lists(st.binary(max_size=300), max_size=4), times=st.sampled_from([1, 2000]))
def test_what_was_packed_comes_out_also_in_several_parts(suffix: str, parts: list[bytes], times: int):
    import tempfile

    parts = [part * times for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"file{suffix}")
        path.write_bytes(b"".join(map(PACK[suffix], parts)))
        with open_plain(path) as file:
            assert file.read() == b"".join(parts)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_is_cut_off_anywhere_is_damaged(tmp_path: Path, suffix: str):
    whole = PACK[suffix](b'{"a": 1}\n' * 40)
    path = tmp_path / f"file{suffix}"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DAMAGED), open_plain(path) as file:
            file.read()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=rf"file\{suffix}:\d+: damaged (gzip|zstd) file"):
        list(read_jsonl(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_is_no_such_file_is_damaged(tmp_path: Path, suffix: str):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(b"no such file at all")
    with pytest.raises(DataError, match=r"damaged (gzip|zstd) file"):
        list(read_jsonl(path))


def test_a_small_file_that_stands_for_much_is_read_in_little_memory(tmp_path: Path):
    import tracemalloc

    path = tmp_path / "much.zst"
    path.write_bytes(zstandard.compress(bytes(1 << 28)))
    tracemalloc.start()
    with open_plain(path) as file:
        total = 0
        while part := file.read(1 << 20):
            total += len(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 1 << 28
    assert peak < 1 << 26, peak
