"""From a recipe and overrides to settings: what is taken from where."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.config import (
    BenchmarkConfig,
    Config,
    CurateConfig,
    GrpoConfig,
    GrpoPlusConfig,
    JudgeRunConfig,
    Override,
    ProblemFilesConfig,
    Resolved,
    SftConfig,
    TrainConfig,
    dump,
    load,
    parse_override,
)

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))


def loaded(folder: Path, text: str, *settings: str) -> Resolved[TrainConfig]:
    """The configuration of a recipe of this text, with `settings` on top."""
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    return load(TrainConfig, folder / "recipe.yaml", [parse_override(setting) for setting in settings])


def overridden(*settings: str) -> TrainConfig:
    return load(TrainConfig, None, [parse_override(setting) for setting in settings]).config


@pytest.mark.parametrize("schema", [TrainConfig, JudgeRunConfig])
def test_nothing_given_means_the_defaults(schema: type[Config]):
    assert load(schema).config == schema()


def test_null_takes_a_string_of_a_recipe_back_where_null_is_a_value_and_else_empties_it(tmp_path: Path):
    text = "publish: {dtype: bfloat16}\nmodel: {path: a/b-1B}\n"
    config = loaded(tmp_path, text, "publish.dtype=null", "model.path=").config
    assert config.publish.dtype is None
    assert not config.model.path


def test_a_block_of_problems_with_a_path_chooses_files_wherever_it_is_set(tmp_path: Path):
    assert loaded(tmp_path, "problems: {path: p.jsonl}\n").config.problems == ProblemFilesConfig(path=Path("p.jsonl"))
    assert overridden("problems={path: p.jsonl}").problems == ProblemFilesConfig(path=Path("p.jsonl"))


def test_an_empty_recipe_means_the_defaults(tmp_path: Path):
    assert loaded(tmp_path, "# nothing yet\n").config == TrainConfig()


def schema_of(recipe: Path) -> type[BenchmarkConfig | CurateConfig | TrainConfig]:
    """What a recipe is for stands in its name."""
    kinds = {"curate": CurateConfig, "evaluate": BenchmarkConfig}
    return kinds.get(recipe.name.partition("-")[0], TrainConfig)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_loads(recipe: Path):
    assert load(schema_of(recipe), recipe).config.name


def test_there_is_the_recipe_of_the_demo():
    assert "demo.yaml" in [recipe.name for recipe in RECIPES]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_what_is_dumped_loads_as_the_same(tmp_path: Path, recipe: Path):
    config = load(schema_of(recipe), recipe).config
    path = tmp_path / recipe.name
    path.write_text(dump(config), encoding="utf-8")
    assert load(schema_of(recipe), path).config == config


@settings(max_examples=30)
@given(
    st.text(max_size=20) | st.sampled_from(["3e-4", "1e5", "2024-01-01", "null", "yes", "1:30", "0x10", "~", "=", ""])
)
def test_any_name_survives_dump_and_load(tmp_path_factory: pytest.TempPathFactory, name: str):
    config = TrainConfig(name=name)
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(dump(config), encoding="utf-8", newline="")
    assert load(TrainConfig, path).config == config


@pytest.mark.parametrize(
    ("text", "value"),
    [("3e-4", 3e-4), ("3E-4", 3e-4), (".5", 0.5), ("1", 1.0), ("1.", 1.0), ("0.0003", 3e-4), ("1e0", 1.0)],
)
def test_numbers_may_be_spelled_as_in_python(tmp_path: Path, text: str, value: float):
    assert loaded(tmp_path, f"optimizer: {{learning_rate: {text}}}").config.optimizer.learning_rate == value
    assert overridden(f"optimizer.learning_rate={text}").optimizer.learning_rate == value


def test_a_recipe_changes_only_what_it_names(tmp_path: Path):
    config = loaded(tmp_path, "sft: {steps: 5}").config
    assert config.sft.steps == 5
    assert config.sft.optimizer == SftConfig().optimizer


def test_a_block_inside_a_block_keeps_the_defaults_of_its_place(tmp_path: Path):
    # The optimizer of the warm start has other defaults than the optimizer of training.
    config = loaded(tmp_path, "sft: {optimizer: {warmup_steps: 7}}").config
    assert config.sft.optimizer == SftConfig().optimizer.model_copy(update={"warmup_steps": 7})


def test_a_block_given_whole_on_the_command_line_keeps_the_defaults_of_its_place():
    config = overridden("sft.optimizer={warmup_steps: 7}")
    assert config.sft.optimizer == SftConfig().optimizer.model_copy(update={"warmup_steps": 7})


def test_overrides_win_over_the_recipe_and_the_last_one_wins(tmp_path: Path):
    assert loaded(tmp_path, "steps: 5", "steps=6", "steps=7").config.steps == 7


def test_an_override_keeps_the_rest_of_its_block(tmp_path: Path):
    config = loaded(tmp_path, "sampler: {max_new_tokens: 50}", "sampler.temperature=0.5").config
    assert (config.sampler.max_new_tokens, config.sampler.temperature) == (50, 0.5)


def test_a_list_is_a_tuple_of_settings():
    assert overridden("judge.time_limit_range=[1, 2]").judge.time_limit_range == (1.0, 2.0)


def test_a_path_is_text_in_a_recipe(tmp_path: Path):
    config = loaded(tmp_path, "problems: {name: files, train: a.jsonl, heldout: b.jsonl}").config
    assert config.problems == ProblemFilesConfig(train=Path("a.jsonl"), heldout=Path("b.jsonl"))


def test_naming_another_choice_resets_its_block(tmp_path: Path):
    config = loaded(tmp_path, "algorithm: {name: grpo_plus, clip_upper: 0.5}", "algorithm.name=grpo").config
    assert config.algorithm == GrpoConfig()


def test_settings_after_the_name_of_a_choice_apply_to_it(tmp_path: Path):
    config = loaded(tmp_path, "algorithm: {clip_upper: 0.5}", "algorithm.name=grpo", "algorithm.clip=0.1").config
    assert config.algorithm == GrpoConfig(clip=0.1)


def test_naming_the_choice_that_is_there_gives_its_defaults(tmp_path: Path):
    config = loaded(tmp_path, "algorithm: {name: grpo_plus, clip_upper: 0.5}", "algorithm.name=grpo_plus").config
    assert config.algorithm == GrpoPlusConfig()


def test_the_name_of_a_run_is_no_choice(tmp_path: Path):
    assert loaded(tmp_path, "{name: a, steps: 5}", "name=b").config.steps == 5


def test_one_entry_of_a_dict_of_blocks_can_be_set():
    pool = overridden("pools.main.executor=spawn").pools["main"]
    assert (pool.executor, pool.processes) == ("spawn", 1)


def test_a_recipe_replaces_a_dict_of_blocks_whole(tmp_path: Path):
    config = loaded(tmp_path, "pools: {a: {}, b: {}}\nworkers: {actor: a, sampler: b}").config
    assert list(config.pools) == ["a", "b"]


@pytest.mark.parametrize("group", ["sampler", "critic", "reference"])
def test_a_group_moves_to_a_pool_of_its_own_by_three_lines(tmp_path: Path, group: str):
    before = ["algorithm: {name: ppo}", "pools:", "  main: {executor: ray}", "workers:", "  actor: main"]
    after = [*before[:3], "  apart: {executor: ray}", *before[3:], f"  {group}: apart"]
    changed = [line for line in difflib.ndiff(before, after) if line.startswith(("+", "-"))]
    places = [loaded(tmp_path, "\n".join(lines)).config.workers.places() for lines in (before, after)]
    assert len(changed) <= 3
    groups = ("actor", "sampler", "reference", "critic", "reward_model")
    assert places[0] == dict.fromkeys(groups, "main")
    assert places[1] == places[0] | {group: "apart"}


def test_a_date_is_text(tmp_path: Path):
    assert loaded(tmp_path, "name: 2024-03-01").config.name == "2024-03-01"


def test_a_mark_of_byte_order_does_no_harm(tmp_path: Path):
    assert loaded(tmp_path, "\ufeffname: a").config.name == "a"


def test_parts_of_a_recipe_may_be_shared_and_then_differ(tmp_path: Path):
    text = "sft: {optimizer: &same {learning_rate: 0.1}}\noptimizer: *same"
    config = loaded(tmp_path, text, "optimizer.learning_rate=0.2").config
    assert (config.sft.optimizer.learning_rate, config.optimizer.learning_rate) == (0.1, 0.2)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        TrainConfig().steps = 1


# --- Where values come from ----------------------------------------------------------------------------------------


def origins(resolved: Resolved[TrainConfig]) -> dict[str, str]:
    return {path: origin for path, _, origin in resolved.lines()}


def test_every_value_says_where_it_comes_from(tmp_path: Path):
    resolved = loaded(tmp_path, "steps: 5\nsft: {steps: 6}", "seed=7")
    found = origins(resolved)
    recipe = str(tmp_path / "recipe.yaml")
    assert [found[path] for path in ("steps", "sft.steps", "seed", "group_size")] == [
        recipe, recipe, "command line", "default",
    ]  # fmt: skip


def test_lines_hold_every_setting_with_its_value(tmp_path: Path):
    lines = {path: value for path, value, _ in loaded(tmp_path, "steps: 5").lines()}
    assert lines["steps"] == 5
    assert lines["judge.time_limit_range"] == [6.0, 12.0]
    assert lines["pools.main.processes"] == 1
    assert "sft" not in lines


def test_an_override_takes_over_the_origin(tmp_path: Path):
    assert origins(loaded(tmp_path, "steps: 5", "steps=6"))["steps"] == "command line"


def test_a_block_set_whole_is_the_origin_of_all_in_it(tmp_path: Path):
    found = origins(loaded(tmp_path, "algorithm: {clip_upper: 0.5}", "algorithm={name: grpo}"))
    assert (found["algorithm.name"], found["algorithm.clip"]) == ("command line", "command line")


def test_a_reset_block_forgets_who_set_it(tmp_path: Path):
    resolved = load(
        TrainConfig, None, [Override("algorithm.clip_upper", 0.5, "x"), Override("algorithm.name", "grpo", "y")]
    )
    found = {path: origin for path, origin in origins(resolved).items() if path.startswith("algorithm")}
    assert found.pop("algorithm.name") == "y"
    assert set(found.values()) == {"default"}


def test_an_empty_block_sets_nothing(tmp_path: Path):
    assert set(origins(loaded(tmp_path, "sft: {}")).values()) == {"default"}
