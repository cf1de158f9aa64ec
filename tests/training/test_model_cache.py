"""A model in the cache is whole or absent, is made once, and is never taken away from another run that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.compose.warm_start import cached_model
from autoclave.core.files import cache_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    return tmp_path


def writes(text: str):
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "weights").write_text(text)

    return make


def cached(text: str, key: str = "a", *, fresh: bool = False) -> str:
    """What the cache gives for `key`, when a model that is made would be `text`."""
    return (cached_model({"key": key}, writes(text), fresh=fresh, say=lambda line: None) / "weights").read_text()


def test_a_model_is_made_once():
    assert cached("first") == "first"
    assert cached("second") == "first"


def test_another_key_is_another_model():
    assert (cached("first", "a"), cached("second", "b")) == ("first", "second")


def test_a_fresh_model_takes_the_place_of_the_old():
    cached("first")
    assert cached("second", fresh=True) == "second"
    assert cached("third") == "second"


def test_a_model_that_could_not_be_made_leaves_nothing(cache):
    def fail(folder: Path) -> None:
        writes("half")(folder)
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        cached_model({"key": "a"}, fail, fresh=False, say=print)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert cached("second") == "second"


def test_a_model_that_another_run_made_meanwhile_is_not_taken_away(cache):
    def make(folder: Path) -> None:
        writes("ours")(folder)
        cached("theirs")

    folder = cached_model({"key": "a"}, make, fresh=False, say=lambda line: None)
    assert (folder / "weights").read_text() == "theirs"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_user_is_told_of_a_model_from_the_cache():
    said: list[str] = []
    for _ in range(2):
        folder = cached_model({"key": "a"}, writes("x"), fresh=False, say=said.append)
    assert said == [f"warm start: taken from {folder}"]


def test_without_a_setting_the_cache_is_that_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("AUTOCLAVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "autoclave"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "autoclave"
