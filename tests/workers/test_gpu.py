"""A GPU computes what the CPU does: actors as they may be held, sampling, weights on their way, and a training run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from autoclave.compose.training import train
from autoclave.config import LoraConfig, TrainConfig, TrainerConfig, load
from autoclave.core.json import to_plain
from autoclave.models import load_policy, save_model
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.spawn_executor import SpawnExecutor
from autoclave_testing.engines import EngineConformance
from tests.training.test_training_runs import RECIPE, problem
from tests.training_parts import tiny_policy
from tests.workers.actor_conformance import ActorConformance, MakeActor, Setup, sample_batch
from tests.workers.changing_actor import make_actor

DEVICE = "cpu" if os.environ.get("AUTOCLAVE_GPU_TESTS") == "cpu" else "cuda"
"""`cpu` shows on any machine that these tests run."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), *([pytest.mark.gpu] if DEVICE == "cuda" else [])]


class TestActorOnGpu(ActorConformance):
    tolerance = 1e-4

    @pytest.fixture
    def make_actor(self) -> Iterator[MakeActor]:
        pool = ResourcePool("one")
        yield lambda folder, setup: WorkerGroup(pool, partial(make_actor, folder, setup, device=DEVICE))
        pool.close()


class TestEngineOnGpu(EngineConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, policy_folder: Path) -> TransformersEngine:
        return TransformersEngine(load_policy(policy_folder, device=DEVICE), batch_size=16, mixes_batches=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    save_model(tiny_policy(), path)
    return path


Updated = tuple[dict[str, float], dict[str, torch.Tensor]]


def two_updates(folder: Path, settings: dict[str, Any], device: str) -> Updated:
    """Metrics of the second update, and the weights after it."""
    actor = make_actor(folder, Setup(micro_batch_tokens=60), TrainerConfig(**settings), device)
    batch = sample_batch((0,) * 7)
    actor.update(batch, 1)
    metrics = actor.update(batch, 1)
    return metrics, {name: tensor.cpu() for name, tensor in actor.export_weights().items()}


def assert_same(found: Updated, expected: Updated) -> None:
    """Up to the rounding of other kernels."""
    assert found[0] == pytest.approx(expected[0], rel=2e-3, abs=1e-4)
    assert max((found[1][name] - expected[1][name]).abs().max().item() for name in expected[1]) < 1e-4


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # both by torch.compile
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize(
    "settings",
    [
        {"cpu_offload": True},
        {"activation_checkpointing": True},
        {"logits_chunk": 2},
        {"packing": "always"},
        {"packing": "shared_prompts"},
        {"lora": LoraConfig(rank=4)},
        {"compile": True},
    ],
    ids=lambda settings: next(iter(settings)) + (f"={settings['packing']}" if "packing" in settings else ""),
)
def test_settings_of_the_trainer_change_no_update(folder: Path, settings: dict[str, Any]):
    if DEVICE == "cpu" and "cpu_offload" in settings:
        pytest.skip("no GPU")
    plain = {"lora": settings["lora"]} if "lora" in settings else {}
    assert_same(two_updates(folder, settings, DEVICE), two_updates(folder, plain, "cpu"))


def test_liger_changes_no_update(folder: Path):
    """In a process of its own: the library changes the classes of models for the whole process."""
    pytest.importorskip("liger_kernel", reason="no GPU, or liger-kernel is not installed")
    pool = ResourcePool("one", SpawnExecutor([("0",)]))
    try:
        group = WorkerGroup(pool, Updates, name="actor")
        assert_same(group.two_updates(folder, {"liger": True}, DEVICE).result(), two_updates(folder, {}, "cpu"))
    finally:
        pool.close()


class Updates:
    """`two_updates` in another process."""

    @register(Dispatch.ONE_TO_ALL)
    def two_updates(self, folder: Path, settings: dict[str, Any], device: str) -> Updated:
        return two_updates(folder, settings, device)


@pytest.mark.parametrize("settings", [{}, {"cpu_offload": True}, {"activation_checkpointing": True}], ids=str)
def test_mixed_precision_moves_weights_as_full_precision_does_up_to_its_rounding(
    folder: Path, settings: dict[str, Any]
):
    if DEVICE == "cpu" and "cpu_offload" in settings:
        pytest.skip("no GPU")
    expected, _ = two_updates(folder, {}, "cpu")
    found, weights = two_updates(folder, {"mixed_precision": "bfloat16", **settings}, DEVICE)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert found["loss"] == pytest.approx(expected["loss"], rel=0.05, abs=0.02)
    assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.1)


# --- Whole runs ----------------------------------------------------------------------------------------------------


def run(folder: Path, device: str, **changes: Any) -> list[dict[str, Any]]:
    """The metrics of each training step."""
    files = {name: folder.with_suffix(f".{name}.jsonl") for name in ("train", "heldout")}
    for name, file in files.items():
        problems = [problem(f"Say {number}.", number, name) for number in range(8)]
        file.write_text("".join(json.dumps(to_plain(each)) + "\n" for each in problems), encoding="utf-8")
    recipe = folder.with_suffix(".yaml")
    fixed = {
        "steps": 3,
        "model": RECIPE["model"] | {"device": device},
        "problems": {"name": "files", **{name: str(file) for name, file in files.items()}},
        "sandbox": {"minimum_level": "restricted"},
    }
    recipe.write_text(json.dumps(RECIPE | fixed | changes), encoding="utf-8")
    train(load(TrainConfig, recipe).config, folder, fresh=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize(
    "pools",
    [{}, {"pools": {"main": {"executor": "spawn"}}}],
    ids=["in one process", "in processes that share the GPU"],
)
def test_a_run_on_the_gpu_learns_what_one_on_the_cpu_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pools: dict[str, Any]
):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path / "cache"))
    expected = run(tmp_path / "cpu", "cpu")
    found = run(tmp_path / "gpu", DEVICE, **pools)
    assert len(found) == len(expected) == 3
    assert any(line["reward/variance"] for line in expected)
    for one, other in zip(found, expected, strict=True):
        compared = [f"policy/{name}" for name in ("loss", "entropy", "gradient_norm")]
        for name in ["reward/mean", *(name for name in compared if name in other)]:
            assert one[name] == pytest.approx(other[name], rel=0.05, abs=1e-2), name
        assert one["publish/mismatch_max"] < 1e-4
