"""An advantage estimator in place of an algorithm's own: what is accepted, what is refused, what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from autoclave.algorithms import build_algorithm
from autoclave.algorithms.estimators import ESTIMATORS
from autoclave.cli.main import cli
from autoclave.config import GrpoConfig, RlooAdvantageConfig, TrainConfig, dump, load, parse_override
from autoclave.config.advantage import ADVANTAGES, AdvantageSettings
from autoclave.core import ConfigError
from tests.algorithms.choices import VARIANTS


def loaded(*settings: str, recipe: Path | None = None) -> TrainConfig:
    return load(TrainConfig, recipe, map(parse_override, settings)).config


def test_every_estimator_has_settings_of_its_name_and_is_combined_in_a_tested_variant():
    names = [schema.model_fields["name"].default for schema in ADVANTAGES]
    assert names == list(ESTIMATORS)
    combined = {getattr(chosen, "advantage", None) for chosen in VARIANTS.values()} - {None}
    assert {chosen.name for chosen in combined} == set(names)


@pytest.mark.parametrize("schema", ADVANTAGES)
def test_settings_know_without_torch_what_the_estimator_needs(schema: type[AdvantageSettings]):
    for name in ("ppo", "grpo"):
        own = schema.model_fields["name"].default
        teacher = ["teacher.path=folder"] if own == "distillation" else []
        chosen = loaded(f"algorithm.name={name}", f"algorithm.advantage={own}", *teacher)
        assert chosen.algorithm.needs_critic == build_algorithm(chosen.algorithm).needs_critic == schema.needs_critic
        assert chosen.algorithm.compares_group == schema.compares_group
        assert not schema.needs_reference or build_algorithm(chosen.algorithm).needs_reference


def test_a_name_a_block_and_a_recipe_say_the_same(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text("algorithm:\n  name: grpo\n  advantage: rloo\n")
    by_name = loaded("algorithm.name=grpo", "algorithm.advantage=rloo")
    assert by_name.algorithm == GrpoConfig(advantage=RlooAdvantageConfig())
    assert loaded("algorithm.name=grpo", "algorithm.advantage.name=rloo") == by_name
    resolved = load(TrainConfig, None, [parse_override("algorithm.advantage=gae")])
    assert resolved.origin("algorithm.advantage.name") == "command line"
    assert resolved.origin("algorithm.advantage.discount") == "default"
    assert loaded(recipe=tmp_path / "recipe.yaml") == by_name
    (tmp_path / "dumped.yaml").write_text(dump(by_name))
    assert loaded(recipe=tmp_path / "dumped.yaml") == by_name


def test_settings_of_an_estimator_follow_its_name():
    chosen = loaded("algorithm.name=grpo", "algorithm.advantage=gae", "algorithm.advantage.gae_lambda=1")
    assert chosen.algorithm.advantage.gae_lambda == 1
    again = loaded("algorithm.advantage=gae", "algorithm.advantage.gae_lambda=0.5", "algorithm.advantage=gae")
    assert again.algorithm.advantage.gae_lambda == 0.95


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("algorithm.advantage=nope", 'algorithm.advantage.name = "nope": no such choice; known are gae, grpo, dr_grpo'),
        ("algorithm.advantage=rlo", "did you mean rloo"),
        (
            "algorithm.advantage.discount=0.9",
            "algorithm.advantage: has no name yet. Fix: set algorithm.advantage.name before its other settings; known",
        ),
        ("algorithm.name=gae", 'algorithm.name = "gae": is a choice of algorithm.advantage.name. Fix: algorithm.adv'),
        (
            "algorithm.advantage=dapo",
            'advantage.name = "dapo": is a choice of algorithm.name. Fix: algorithm.name=dapo',
        ),
        ("algorithm.advantage=3", "must be a block of settings with a name, one of gae, grpo"),
        ("algorithm.advantage=rloo algorithm.advantage.discount=0.9", "rloo does not use it (gae does)"),
        ("algorithm.advantage=gae algorithm.advantage.discount=2", "algorithm.advantage.discount = 2: must be less"),
        (
            "algorithm.advantage=gae algorithm.include_masked_in_baseline=true",
            "include_masked_in_baseline = True: advantage = gae does not",
        ),
        ("algorithm.advantage=rloo group_size=1", "grpo_plus with advantage=rloo compares rollouts of one problem"),
        ("algorithm.advantage=rloo critic.path=x", "has no critic; choose algorithm.advantage=gae"),
        (
            "algorithm.reading=introduction algorithm.advantage=rloo",
            "advantage = rloo: reading = introduction does not",
        ),
        (
            "algorithm.name=ppo algorithm.advantage=rloo algorithm.gae_lambda=0.9",
            "gae_lambda = 0.9: advantage = rloo does not use it; remove it",
        ),
        (
            "algorithm.name=ppo algorithm.advantage=gae algorithm.gae_lambda=0.9",
            "gae_lambda = 0.9: advantage = gae does not use it; remove it, or set advantage.gae_lambda",
        ),
        (
            "algorithm.name=reinforce_plus_plus algorithm.baseline=group algorithm.advantage=rloo",
            "baseline = group: advantage = rloo does not use it",
        ),
    ],
)
def test_a_key_that_the_estimator_would_ignore_is_an_error(settings: str, complaint: str):
    with pytest.raises(ConfigError) as raised:
        loaded(*settings.split())
    assert complaint in str(raised.value)


def test_the_plan_has_a_critic_if_and_only_if_the_estimator_reads_its_values():
    def planned(*settings: str) -> str:
        result = CliRunner().invoke(cli, ["plan", *settings], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    assert "weights (critic)" in planned("algorithm.name=grpo", "algorithm.advantage=gae")
    assert "weights (critic)" not in planned("algorithm.name=ppo", "algorithm.advantage=rloo")


def test_distillation_resamples_no_groups():
    settings = ("algorithm.name=dapo", "algorithm.advantage=distillation", "teacher.path=folder")
    with pytest.raises(
        ConfigError, match=r"algorithm\.max_resamples = 3: distillation has a signal in groups of equal"
    ):
        loaded(*settings)
    assert loaded(*settings, "algorithm.max_resamples=0").algorithm.advantage.needs_reference
