"""Each training recipe suits its model, fits the hardware that its first line names, and cannot be broken silently."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from autoclave.compose.preflight import preflight, require_cache_for_one_request
from autoclave.config import BenchmarkConfig, TrainConfig, load
from autoclave.core import AutoclaveError
from autoclave.planning.accounting.fitting import fits
from autoclave.planning.accounting.shape import read_shape
from benchmarks.recipes import (
    GIB,
    MIB,
    ON_GPUS,
    PAGE,
    RECIPES,
    TRAINING,
    gpus_of,
    hardware_of,
    plan_of,
    settings_of,
    table,
)

OF_PAPERS = [path for path in ON_GPUS if not path.stem.startswith("one-")]
WITH_ALIGNMENT = [path for path in ON_GPUS if path.stem.startswith("coderl-plus")]
EVALUATIONS = sorted(RECIPES.glob("evaluate-*.yaml"))


def named(recipe: Path) -> str:
    return recipe.stem


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


# --- Hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", TRAINING, ids=named)
def test_a_recipe_names_its_gpus_in_the_first_line_or_says_that_it_runs_on_cpu_cores(recipe: Path):
    text = recipe.read_text(encoding="utf-8")
    assert (
        hardware_of(recipe) or re.search(r"2 CPU cores|two cores", text) or "embedded" in text.partition("\nname:")[0]
    )


@pytest.mark.parametrize("algorithm", ["", "ppo", "reinforce_plus_plus"])
@pytest.mark.parametrize("recipe", ON_GPUS, ids=named)
def test_a_recipe_fits_the_hardware_that_it_names_by_plan(recipe: Path, algorithm: str, models: Path):
    if algorithm and recipe not in WITH_ALIGNMENT:
        return
    config = settings_of(recipe, models, *([f"algorithm.name={algorithm}"] if algorithm else []))
    hardware = hardware_of(recipe)
    assert sum(gpus_of(config, pool) for pool in config.pools) == hardware.count
    for pool in plan_of(config).pools:
        assert fits(pool, hardware.gpu), f"{pool.name}: {pool.peak.name} takes {pool.peak.total / GIB:.1f} GiB"
        assert pool.peak.total <= config.pools[pool.name].memory_gb * GIB


@pytest.mark.parametrize("recipe", EVALUATIONS, ids=named)
def test_an_evaluation_of_a_model_of_14b_fits_the_hardware_that_it_names(recipe: Path, models: Path):
    config = load(BenchmarkConfig, recipe).config
    settings_of(RECIPES / "deepcoder-14b.yaml", models)
    shape = read_shape(models / "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B")
    engine, weights = config.model.engine, 2 * shape.parameters
    request = 2 * 2 * shape.layers * shape.key_value_width * engine.context
    assert config.max_new_tokens < engine.context <= shape.context
    assert request <= engine.cache_mb * MIB
    assert weights + engine.cache_mb * MIB <= 0.9 * hardware_of(recipe).gpu.memory_mib * MIB


def test_the_page_of_recipes_has_the_table_that_the_plan_gives():
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition("<!-- plans -->\n")[2].partition("<!-- /plans -->")[0] == table()


# --- Guards ----------------------------------------------------------------------------------------------------------


def complaints(config: TrainConfig, folder: Path) -> str:
    """What the checks before a run say; the weights of the model, for one, are missing here."""
    with pytest.raises(AutoclaveError) as refused:
        preflight(config, folder / "run")
    return str(refused.value)


def places(text: str) -> set[str]:
    return set(re.findall(r"^(?:- )?([a-z_.]+) = ", text, re.MULTILINE))


FULL = [path for path in ON_GPUS if "lora" not in path.stem]


@pytest.mark.parametrize("recipe", ON_GPUS, ids=named)
def test_weights_in_bfloat16_at_the_rate_of_a_recipe_are_refused(recipe: Path, models: Path, tmp_path: Path):
    rate = "optimizer.learning_rate"
    assert rate not in places(complaints(settings_of(recipe, models), tmp_path))
    plain = ["trainer.mixed_precision=none", "publish={}"]
    if recipe not in FULL:
        plain = ["trainer.lora=null", "publish.content=weights", "optimizer.learning_rate=1e-6"]
    text = complaints(settings_of(recipe, models, "model.dtype=bfloat16", *plain), tmp_path)
    assert any(place.endswith(rate) for place in places(text))  # of the warm start, where there is one
    assert "model.dtype" in text


@pytest.mark.parametrize("recipe", ON_GPUS, ids=named)
def test_a_rate_beyond_the_size_of_the_model_is_refused(recipe: Path, models: Path, tmp_path: Path):
    text = complaints(settings_of(recipe, models, "optimizer.learning_rate=4e-3"), tmp_path)
    assert "optimizer.learning_rate" in places(text)


@pytest.mark.parametrize("recipe", ON_GPUS, ids=named)
def test_a_cache_of_less_than_one_request_is_refused(recipe: Path, models: Path):
    require_cache_for_one_request(settings_of(recipe, models))
    with pytest.raises(AutoclaveError, match=r"^sampler\.engine\.cache_mb = 32: "):
        require_cache_for_one_request(settings_of(recipe, models, "sampler.engine.cache_mb=32"))


@pytest.mark.parametrize("recipe", WITH_ALIGNMENT, ids=named)
def test_with_ppo_by_one_flag_the_critic_has_a_rate_for_a_model_of_its_size(recipe: Path, models: Path, tmp_path: Path):
    config = settings_of(recipe, models, "algorithm.name=ppo")
    assert config.critic.optimizer.learning_rate <= 1e-5
    rate = "critic.optimizer.learning_rate"
    assert rate not in places(complaints(config, tmp_path))
    broken = settings_of(recipe, models, "algorithm.name=ppo", f"{rate}=2e-3")
    assert rate in places(complaints(broken, tmp_path))


# --- Values ----------------------------------------------------------------------------------------------------------


def unsourced(recipe: Path) -> list[str]:
    """Lines of settings that neither they themselves nor a block around them say the source of."""
    missing: list[str] = []
    sourced: list[tuple[int, bool]] = []  # of the blocks around a line: their indent, and whether they say it
    for line in recipe.read_text(encoding="utf-8").splitlines():
        setting = re.match(r"( *)([a-z_0-9]+):(.*)", line)
        if not setting:
            continue
        indent, rest = len(setting[1]), setting[3]
        while sourced and sourced[-1][0] >= indent:
            sourced.pop()
        says = re.search(r" # (ours|[RTPS]\b)", rest) is not None
        is_said = says or any(said for _, said in sourced)
        if rest.partition("#")[0].strip() and not is_said:
            missing.append(line)
        sourced.append((indent, is_said))
    return missing


@pytest.mark.parametrize("recipe", OF_PAPERS, ids=named)
def test_every_value_of_a_recipe_of_a_paper_has_its_source(recipe: Path):
    exempt = ("name: ", "  name: files", "  chat_template: ")
    assert [line for line in unsourced(recipe) if not line.startswith(exempt)] == []


def value_of(config: TrainConfig, path: str) -> object:
    found: object = config.model_dump(mode="json")
    for name in path.split("."):
        assert isinstance(found, dict)
        found = found[name]
    return found


@pytest.mark.parametrize("recipe", OF_PAPERS, ids=named)
def test_a_recipe_has_the_values_that_the_page_of_recipes_quotes_from_its_paper(recipe: Path):
    page = (RECIPES.parent / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    section = page.partition(f"\n### {recipe.stem}\n")[2].partition("\n### ")[0]
    quoted = dict(re.findall(r"^\| .* \| `([a-z_.0-9]+)` \| `(.+)` \| .* \|$", section, re.MULTILINE))
    config = load(TrainConfig, recipe).config
    assert {path: value_of(config, path) for path in quoted} == {
        path: yaml.safe_load(text) for path, text in quoted.items()
    }
    assert len(quoted) >= 9


@pytest.mark.parametrize("recipe", ON_GPUS, ids=named)
def test_a_recipe_reads_what_curation_writes(recipe: Path):
    problems = load(TrainConfig, recipe).config.problems
    used = {path.name for path in (problems.train, problems.heldout)}
    assert used in ({"train.jsonl", "heldout.jsonl"}, {"problems.jsonl.zst"})
