"""Texts that are kept are found again by their keys, by others too; and a file that cannot be used is named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.core.sqlite_files import KeptTexts


def test_texts_are_found_by_their_keys_and_the_last_counts(tmp_path: Path):
    with KeptTexts(tmp_path / "deep/kept.sqlite", "things") as kept:
        for key, text in ((b"a", "one"), (b"b", "two"), (b"a", "three")):
            kept.put(key, text)
    with KeptTexts(tmp_path / "deep/kept.sqlite", "things") as kept:
        assert [kept.get(key) for key in (b"a", b"b", b"c")] == ["three", "two", None]


@pytest.mark.parametrize("run", range(5))
def test_several_open_a_new_file_and_write_at_a_time(tmp_path: Path, run: int):
    def write(number: int) -> None:
        with KeptTexts(tmp_path / "kept.sqlite", "things") as kept:
            for place in range(20):
                kept.put(f"{number} {place}".encode(), f"{number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with KeptTexts(tmp_path / "kept.sqlite", "things") as kept:
        assert all(kept.get(f"{number} 19".encode()) == f"{number}" for number in range(4))


def test_damage_is_named_whenever_it_is_found(tmp_path: Path):
    path = tmp_path / "kept.sqlite"
    with KeptTexts(path, "things") as kept:
        for number in range(100):
            kept.put(f"{number}".encode(), "x" * 1000)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)  # all but the first page
    path.write_bytes(content)
    with KeptTexts(path, "things") as kept:
        with pytest.raises(InputError, match=r"kept\.sqlite: things cannot be kept there.*AUTOCLAVE_CACHE"):
            kept.get(b"1")
        with pytest.raises(InputError, match=r"kept\.sqlite"):
            kept.put(b"1", "y")
