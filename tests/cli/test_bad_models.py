"""A model that a run cannot use ends `train` with one line that says the fix, before anything is written or loaded."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from autoclave.config import TrainConfig, dump, load, parse_override
from autoclave.models import Policy, build_tiny_policy, save_model
from autoclave.training.checkpoints import Checkpoints, policy_inputs
from tests.training_parts import TEXTS, TINY, tiny_policy

Complaint = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def no_progress_bars() -> None:
    """Of models that tests save: they are not what the command prints."""
    logging.disable_progress_bar()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tiny_policy(), tmp_path / "model")
    return tmp_path / "model"


def change(path: Path, **settings: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_a_folder_without_a_chat_template(complaint: Complaint, model: Path, tmp_path: Path):
    (model / "chat_template.jinja").unlink()
    code, error = complaint("train", "--out", "run", "model.path=model", "sft.steps=0")
    assert (code, error) == (
        2,
        "Error: model.path = 'model': its tokenizer has no chat template; use an instruct model, or give one in "
        "model.chat_template\n",
    )
    assert os.listdir(tmp_path) == ["model"]


def test_a_tokenizer_that_is_too_large_for_its_model(complaint: Complaint, model: Path, tmp_path: Path):
    larger = copy.deepcopy(tiny_policy().tokenizer)
    larger.add_tokens(["<extra>"])
    larger.save_pretrained(model)
    code, error = complaint("train", "--out", "run", "model.path=model", "sft.steps=0")
    assert code == 2
    assert error.startswith("Error: model.path = 'model': its tokenizer has token \"<extra>\" of id")
    assert error.count("\n") == 1
    assert os.listdir(tmp_path) == ["model"]


def test_a_layer_for_adapters_that_the_model_does_not_have(complaint: Complaint, model: Path, tmp_path: Path):
    for which in ("model.path=model", "model.path=''"):
        code, error = complaint("train", "--out", "run", which, "trainer.lora.targets=[q_poj]")
        message = "Error: trainer.lora.targets: 'q_poj' is no linear layer of this model; did you mean q_proj?\n"
        assert (code, error) == (2, message)
    assert os.listdir(tmp_path) == ["model"]


def test_more_workers_than_devices(complaint: Complaint, tmp_path: Path):
    asked = torch.cuda.device_count() + 1
    setting = f"pools={{main: {{executor: spawn, devices_per_process: {asked}}}}}"
    code, error = complaint("train", "--out", "run", setting)
    assert code == 3
    assert error == (
        f"Error: this machine has {asked - 1} GPUs for pools that spawn processes, they need {asked} ({asked} for "
        "pools.main); lower processes or devices_per_process, or put groups on one pool\n"
    )
    assert os.listdir(tmp_path) == []


# --- Resumed -------------------------------------------------------------------------------------------------------


class NoState:
    """Of a trainer that keeps nothing."""

    def begin_save(self, folder: Path) -> None:
        pass

    def finish_save(self, wait: bool) -> bool:
        return True


def run_with_checkpoint(folder: Path, start: Policy, saved: Policy, *settings: str) -> None:
    """The folder of a run that began with `start` and has a checkpoint of `saved`."""
    config = load(TrainConfig, None, [parse_override(setting) for setting in settings]).config
    save_model(start, folder / "start")
    (folder / "config.yaml").write_text(dump(config))
    (folder / "checkpoints").mkdir()
    inputs = policy_inputs(json.loads(saved.model.config.to_json_string()))
    with Checkpoints(folder / "checkpoints", config, NoState(), inputs) as checkpoints:
        checkpoints.begin(1, {})


def test_a_checkpoint_of_another_architecture(complaint: Complaint, tmp_path: Path):
    wider = build_tiny_policy(TINY.model_copy(update={"hidden_size": 64}), TEXTS, seed=0, device="cpu")
    run_with_checkpoint(tmp_path / "run", start=wider, saved=tiny_policy())
    code, error = complaint("train", "--out", "run", "--resume")
    assert code == 2
    assert error.startswith("Error: run/checkpoints/step-000001: made with architecture.")
    assert error.endswith("resume with the same settings and files, or start another run with --out\n")
