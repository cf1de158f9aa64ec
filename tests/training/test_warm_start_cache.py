"""What the warm start of a run is taken from: a model of the cache only if nothing it was made of has changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoclave.compose import warm_start as module
from autoclave.config import TrainConfig


def test_a_model_folder_whose_content_has_changed_is_another_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    config = TrainConfig.model_validate({"model": {"path": str(tmp_path / "model")}, "sft": {"steps": 0}})

    def make(config: Any, problems: Any, out: Path, around: Any) -> None:
        out.mkdir(parents=True)
        (out / "weights").write_bytes(weights.read_bytes())

    monkeypatch.setattr(module, "warm_start", make)

    def started() -> bytes:
        around = cast("Any", SimpleNamespace(say=lambda line: None))
        return (module.warm_started(config, cast("Any", None), around, fresh=False) / "weights").read_bytes()

    weights.write_bytes(b"first")
    assert started() == b"first"
    weights.write_bytes(b"second")
    assert started() == b"second"
