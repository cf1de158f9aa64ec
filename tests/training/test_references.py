"""Which reference a run has: none, a group with weights of its own, or the actor without its adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.compose.workers import Workers
from autoclave.config import (
    AlgorithmSettings,
    DistillationAdvantageConfig,
    GrpoConfig,
    GrpoPlusConfig,
    LoraConfig,
    ModelConfig,
    TeacherConfig,
    TrainConfig,
    TrainerConfig,
    load,
    parse_override,
)
from autoclave.core import ConfigError, InputError
from autoclave.models import save_model
from autoclave.training.learned import ShuffledItems
from autoclave.training.schedules import RunProgress, synchronous
from autoclave.workers import WorkerGroup
from autoclave.workers.trainer.reference import NoReference, SharedReference
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import tiny_policy

LORA = LoraConfig(rank=2)


@pytest.fixture
def reference_of(tmp_path: Path) -> Callable[..., object]:
    """reference_of(algorithm, lora): the reference of a run with these settings."""
    save_model(tiny_policy(), tmp_path)

    def of(algorithm: AlgorithmSettings, lora: LoraConfig | None = None, teacher: str = "") -> object:
        config = TrainConfig(
            algorithm=algorithm,
            trainer=TrainerConfig(lora=lora),
            model=ModelConfig(device="cpu", threads=1),
            teacher=TeacherConfig(path=teacher),
        )
        workers = Workers(config, tmp_path)
        workers.close()
        return workers.reference

    return of


@pytest.mark.parametrize("lora", [None, LORA])
def test_grpo_plus_has_no_reference(reference_of, lora: LoraConfig | None):
    assert isinstance(reference_of(GrpoPlusConfig(), lora), NoReference)


def test_an_algorithm_with_a_kl_term_has_one_with_weights_of_its_own(reference_of):
    assert isinstance(reference_of(GrpoConfig(kl_coefficient=0.1)), WorkerGroup)


def test_where_an_adapter_learns_the_actor_is_the_reference(reference_of):
    assert isinstance(reference_of(GrpoConfig(kl_coefficient=0.1), LORA), SharedReference)


DISTILLATION = GrpoConfig(kl_coefficient=0.0, advantage=DistillationAdvantageConfig())


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """A teacher with other weights, whose tokenizer has no chat template."""
    policy = tiny_policy(1)
    folder = tmp_path / "teacher"
    save_model(policy, folder)
    for file in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        if file.suffix == ".jinja":
            file.unlink(missing_ok=True)
        else:
            file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))
    return folder


@pytest.mark.parametrize("lora", [None, LORA])
def test_a_teacher_is_a_reference_with_weights_of_its_own(reference_of, teacher: Path, lora: LoraConfig | None):
    assert isinstance(reference_of(DISTILLATION, lora, str(teacher)), WorkerGroup)


def test_a_teacher_that_nothing_reads_or_that_is_missing_is_an_error(reference_of, teacher: Path):
    with pytest.raises(ConfigError, match=r"teacher\.path = .*no KL term here"):
        reference_of(GrpoPlusConfig(), None, str(teacher))
    with pytest.raises(InputError, match=r"teacher\.path = 'no/such'|teacher\.path = './no/such': no such folder"):
        reference_of(DISTILLATION, None, "./no/such")
    with pytest.raises(ConfigError, match=r"there is no teacher; set teacher\.path"):
        load(TrainConfig, None, map(parse_override, ["algorithm.name=grpo", "algorithm.advantage=distillation"]))


def test_a_teacher_with_another_vocabulary_is_refused(reference_of, teacher: Path):
    file = teacher / "tokenizer.json"
    described = json.loads(file.read_text())
    vocabulary = described["model"]["vocab"]
    first, second, *_ = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(described))
    with pytest.raises(InputError, match=r"teacher\.path"):
        reference_of(DISTILLATION, None, str(teacher))


def test_a_student_comes_nearer_to_its_teacher():
    steps, algorithm = 30, GrpoConfig(kl_coefficient=1e-6, advantage=DistillationAdvantageConfig())
    with toy_stages(steps=steps, algorithm=algorithm, group_size=16, start=lambda: tiny_policy(1)) as stages:
        source = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        divergences = [
            iteration.learned.metrics["reference_kl"]
            for iteration in synchronous(stages, source, RunProgress(0, steps))
        ]
    assert sum(divergences[-5:]) < 0.5 * sum(divergences[:5]), divergences
