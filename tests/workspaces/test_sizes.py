"""The size of a folder counts all that is below, however deep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoclave.workspaces.sizes import size_of


@pytest.mark.parametrize("name", ["a" * 250, "\U0001d11e" * 60])
def test_a_file_below_long_names_counts(tmp_path: Path, name: str):
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):  # more than twice the longest path of the kernel
        os.mkdir(name, dir_fd=place)
        above, place = place, os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(above)
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=place), "wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        os.fsync(place)
        os.fsync(file.fileno())
    os.close(place)
    assert size_of(tmp_path) >= 100_000
