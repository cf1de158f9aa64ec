"""Every mistake in a recipe or on the command line is one line: path, value, rule, and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.config import Config, JudgeRunConfig, LoraConfig, Override, TrainConfig, load, parse_override
from autoclave.config.frameworks import ours_by_theirs
from autoclave.core import ConfigError, InputError

DEFAULT = TrainConfig()


def complaint(schema: type[Config], recipe: Path | None, *settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(schema, recipe, [parse_override(setting) for setting in settings])
    message = str(caught.value)
    assert message.isprintable()  # no line break either
    assert len(message) < 420
    return message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        # no such name
        ("stepz=1", "stepz: no such setting; did you mean steps?"),
        ("qqq=1", "qqq: no such setting; known are algorithm, alignment, checkpoint, critic, "),
        (
            "sandbox.memroy_limit_mb=1",
            "sandbox.memroy_limit_mb: no such setting; did you mean sandbox.memory_limit_mb?",
        ),
        (
            "sft.optimizer.learning_rat=1",
            "sft.optimizer.learning_rat: no such setting; did you mean sft.optimizer.learning_",
        ),
        ("algorithm.adv_estimator=grpo", "algorithm.adv_estimator: no such setting; did you mean algorithm.name?"),
        ("num_generations=8", "num_generations: no such setting; did you mean group_size?"),
        ("optimizer.lr=1", "optimizer.lr: no such setting; did you mean optimizer.learning_rate?"),
        ("pools.main.proceses=1", "pools.main.proceses: no such setting; did you mean pools.main.processes?"),
        ("batch_size=1", "batch_size: no such setting; did you mean sampler.engine.batch_size?"),
        (
            "model.tiny.qqq=1",
            "model.tiny.qqq: no such setting; known are context, heads, hidden_size, layers, vocabulary",
        ),
        # choices
        (
            "algorithm.name=grppo",
            'algorithm.name = "grppo": no such choice; did you mean grpo? Known are ppo, grpo, grpo_plus',
        ),
        ("algorithm.name=7", "algorithm.name = 7: no such choice; known are ppo, grpo, grpo_plus"),
        ("algorithm={clip: 0.1}", "algorithm.clip: no such setting; grpo_plus does not use it (grpo, dr_grpo"),
        ("algorithm=grpo", 'algorithm = "grpo": must be a block of settings with a name, one of ppo, grpo, grpo_plus'),
        ("sampler.engine.name=vlm", 'sampler.engine.name = "vlm": no such choice; '),
        ("algorithm.clip=0.1", "algorithm.clip: no such setting; grpo_plus does not use it (grpo, dr_grpo"),
        ("problems.name=files", "problems: train is missing; give train and heldout, or path alone"),
        (
            "task.name=maths",
            'task.name = "maths": no such choice; did you mean mathematics? Known are code_generation, ',
        ),
        (
            "task={name: mathematics, extraction: lcb}",
            "task.extraction: no such setting; mathematics does not use it (code_generation does)",
        ),
        ("task.answer=boxed", "task.answer: no such setting; code_generation does not use it (mathematics does)"),
        (
            "task.name=mathematics",
            "problems.name = synthetic: makes problems for task.name=code_generation only, and task.name = mathematics",
        ),
        (
            "problems.name=arithmetic",
            "problems.name = arithmetic: makes problems for task.name=mathematics only, and task.name = code_",
        ),
        (
            "algorithm.mask_turn_limit=true",
            "algorithm.mask_turn_limit: needs task.turns above 1, and a task whose policy ends its episodes",
        ),
        # types
        ("steps=many", 'steps = "many": must be a valid integer'),
        ("steps=1.5", "steps = 1.5: must be a valid integer"),
        ("steps='1'", 'steps = "1": must be a valid integer'),
        ("steps=", "steps = null: must be a valid integer"),
        ("steps=true", "steps = true: must be a valid integer"),
        ("seed=2024-03-01", 'seed = "2024-03-01": must be a valid integer'),
        ("name=5", "name = 5: must be a valid string"),
        ("optimizer.learning_rate=x", 'optimizer.learning_rate = "x": must be a valid number'),
        ("sft=null", "sft = null: must be a block of settings"),
        ("sft=5", "sft = 5: must be a block of settings"),
        ("pools=3", "pools = 3: must be a block of settings"),
        ("judge.time_limit_range=[1]", "judge.time_limit_range.1: required setting is missing"),
        ("judge.time_limit_range=[1, x]", 'judge.time_limit_range.1 = "x": must be a valid number'),
        (f"name=[{'1, ' * 200}]", "name = [1, 1, 1, "),
        # out of range
        ("sandbox.memory_limit_mb=-1", "sandbox.memory_limit_mb = -1: must be greater than 0"),
        ("sampler.top_p=1.1", "sampler.top_p = 1.1: must be less than or equal to 1"),
        ("optimizer.learning_rate=.inf", "optimizer.learning_rate = Infinity: must be a finite number"),
        ("optimizer.learning_rate=.nan", "optimizer.learning_rate = NaN: must be a finite number"),
        ("seed=-1", "seed = -1: must be greater than or equal to 0"),
        ("problems.heldout=5", "problems.heldout = 5: must be greater than or equal to 200"),
        ("sandbox.level=seald", "sandbox.level = \"seald\": must be 'auto', 'sealed', 'restricted' or 'open'"),
        ("task.tests=longest", 'task.tests = "longest": must match pattern'),
        # contradictions
        (
            "group_size=1",
            f"group_size = 1: {DEFAULT.algorithm.name} compares rollouts of one problem, so it needs at least 2; "
            "algorithm.name=reinforce_plus_plus needs 1",
        ),
        ("algorithm.discount=1", "algorithm.discount: no such setting; grpo_plus does not use it (ppo does)"),
        (
            "algorithm.group_kl_limit=0.5",
            "algorithm: group_kl_limit = 0.5: reading = report does not use it; remove it, or set reading = int",
        ),
        (
            "algorithm={reading: introduction, mask_overlong: false}",
            "algorithm: mask_overlong = False: reading = introduction does not use it; remove it, or set reading = rep",
        ),
        (
            "algorithm={name: ppo, kl_coefficient: 0.0, kl_controller: {name: adaptive}}",
            "algorithm: kl_controller is ignored when kl_coefficient = 0; remove it, or",
        ),
        (
            "algorithm.correction={name: masked, upper: 0.9}",
            "algorithm.correction: lower = 0.5, upper = 0.9: 1, the ratio of equal policies, must lie between",
        ),
        (
            "algorithm.correction.upper=3",
            "algorithm.correction.upper: no such setting; none does not use it (truncated, masked do)",
        ),
        (
            "minibatches=1000",
            f"minibatches = 1000: must divide problems_per_step = {DEFAULT.problems_per_step}, because",
        ),
        ("sampler.max_new_tokens=9999", "sampler.max_new_tokens = 9999: must be below model.tiny.context = "),
        ("evaluation.max_new_tokens=9999", "evaluation.max_new_tokens = 9999: must be below model.tiny.context = "),
        (
            "length_schedule.stages=[{max_new_tokens: 8}, {max_new_tokens: 8}]",
            "length_schedule: stages.1.max_new_tokens = 8: must be above the 8 of the stage before it",
        ),
        (
            "length_schedule.stages=[{max_new_tokens: 8}, {max_new_tokens: 9999}]",
            "length_schedule.stages.1.max_new_tokens = 9999: must be below model.tiny.context = ",
        ),
        (
            "length_schedule.stages=[{max_new_tokens: 8}, {max_new_token: 9}]",
            "length_schedule.stages.1.max_new_token: no such setting; did you mean ",
        ),
        (
            "length_schedule={stages: [{max_new_tokens: 8}, {max_new_tokens: 9}], advance: {name: steps,steps: [3,5]}}",
            "length_schedule: advance.steps = [3, 5]: 2 stages need 1, the end of each but the last",
        ),
        (
            "length_schedule={stages: [{max_new_tokens: 8}, {max_new_tokens: 9}], advance: {name: steps, window: 5}}",
            "length_schedule.advance.window: no such setting; steps does not use it (plateau does)",
        ),
        (
            "length_schedule={stages: [{max_new_tokens: 8}, {max_new_tokens: 9}], advance: {name: steps,steps: [999]}}",
            f"steps = {DEFAULT.steps}: the last of length_schedule.stages begins after 999 steps at least; raise",
        ),
        ("judge.time_limit_range=[2, 1]", "judge: time_limit_range = [2.0, 1.0]: the first number must not exceed"),
        (
            "pools.main.processes=2",
            "pools.main: processes = 2: the inline executor runs one worker, in this process; use executor=spawn or r",
        ),
        (
            "pools.main.devices_per_process=1",
            "pools.main: devices_per_process = 1: the inline executor does not use it, its workers run where model.dev",
        ),
        (
            "trainer.sharding=zero2",
            "trainer.sharding = zero2: is ignored, because every model that learns has one process; remove it, or set "
            "pools.main.processes",
        ),
        ("pools.main.executor=thread", "pools.main.executor = \"thread\": must be 'inline', 'spawn' or 'ray'"),
        ("workers.sampler=mian", 'workers.sampler = "mian": no such pool; did you mean main?'),
        ("workers.reference=gpus", 'workers.reference = "gpus": no such pool; known are main'),
        ("pools.idle.executor=ray", "pools.idle: no worker group lives on it; remove it, or set workers.actor=idle"),
        (
            "model={path: a, tiny: {layers: 1}}",
            "model: tiny is ignored when path = 'a'; remove model.tiny, or leave model.path empty",
        ),
        ("model.chat_template=x", "model: chat_template is ignored when path is empty: the embedded model has its own"),
        ("critic.path=x", "critic is ignored: grpo_plus has no critic; choose algorithm.name=ppo, or remove it"),
        ("critic.optimizer.learning_rate=1", "critic is ignored: grpo_plus has no critic; "),
        ("workers.critic=main", 'workers.critic = "main": grpo_plus has no critic; choose algorithm.name=ppo, or'),
        ("reward_model.weight=2", "reward_model: weight = 2.0: there is no reward model; set path, or remove it"),
        ("workers.reward_model=main", 'workers.reward_model = "main": there is no reward model; set reward_model.path'),
        ("pools.main.memory_gb=0", "pools.main.memory_gb = 0: must be greater than 0"),
        (
            "sandbox.level=open",
            'sandbox: level "open" is below minimum_level "sealed"; to accept it set sandbox.minimum_level=open',
        ),
        ("trainer.lora=4", "trainer.lora = 4: must be a block of settings"),
        ("trainer.lora.rnk=4", "trainer.lora.rnk: no such setting; did you mean trainer.lora.rank?"),
        (
            "pools={main: {executor: spawn, processes: 999}}",
            "pools.main.processes = 999: a minibatch has 256 rollouts (problems_per_step x group_size / minibatches), ",
        ),
        # not a block
        ("steps.x=1", f"steps.x: steps = {DEFAULT.steps} is not a block of settings"),
        ("judge.time_limit_range.0=1", "judge.time_limit_range.0: judge.time_limit_range = [6.0, 12.0] is not a bl"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(setting: str, message: str):
    assert complaint(TrainConfig, None, setting).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("trainer.mixed_precision=bfloat16", "model.dtype=bfloat16"),
            "trainer.mixed_precision = bfloat16: needs weights in float32, and model.dtype = bfloat16; use model.dtype",
        ),
        (
            ("trainer.cpu_offload=true", "model.device=cpu"),
            "trainer.cpu_offload = true: is ignored with model.device = cpu, where all is in the memory of the host",
        ),
        (
            ("alignment.share=0.4", "schedule.name=minibatch_pipeline"),
            "alignment: answers to its samples are complete first, so minibatches in order of completion hold",
        ),
        (
            ("alignment.max_new_tokens=9999", "sampler.max_new_tokens=64"),
            "alignment.max_new_tokens = 9999: must be at most sampler.max_new_tokens = 64",
        ),
        (
            ("alignment.programs=reference", "alignment.max_staleness=3"),
            "alignment: max_staleness: is ignored with programs = reference; remove it",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings: tuple[str, ...], message: str):
    assert complaint(TrainConfig, None, *settings).startswith(message)


def test_what_is_ignored_can_be_set_back_to_its_default(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("alignment: {growth: {steps: 3}}", encoding="utf-8")
    reference = parse_override("alignment.programs=reference")
    with pytest.raises(ConfigError, match="growth: is ignored"):
        load(TrainConfig, recipe, [reference])
    load(TrainConfig, recipe, [reference, parse_override("alignment.growth=null")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=1", '"=1": a setting is path=value, for example optimizer.learning_rate=3e-4'),
        ("steps", '"steps": a setting is path=value, for example optimizer.learning_rate=3e-4'),
        ("a..b=1", '"a..b=1": a setting is path=value, '),
        (".steps=1", '".steps=1": a setting is path=value, '),
        ("steps=[1", "steps = \"[1\": not valid YAML (line 1: expected ',' or ']', but got '<stream end>')"),
        ("name=a: b: c", 'name = "a: b: c": not valid YAML (line 1: mapping values are not allowed here)'),
        ("name=!!python/object:os.system x", 'name = "!!python/object:os.system x": not valid YAML (line 1: could not'),
        ("name=&a [*a]", 'name = "&a [*a]": not valid YAML (Circular reference detected)'),
    ],
)
def test_text_that_is_no_setting_is_named(text: str, message: str):
    assert complaint(TrainConfig, None, text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", ": not a recipe (line 1: mapping values are not allowed here)"),
        ("steps: 1\nsft: [1", ": not a recipe (line 2: expected ',' or ']', but got '<stream end>')"),
        ("steps: 1\nsteps: 2", ': not a recipe (line 2: "steps" is given twice)'),
        ("sft: {steps: 1, steps: 2}", ': not a recipe (line 1: "steps" is given twice)'),
        ("[1, 2]", ": a recipe is a mapping of settings, found [1, 2]"),
        ("steps", ': a recipe is a mapping of settings, found "steps"'),
        ("1: 2", ": not a recipe (line 1: 1 as a key: keys are text)"),
        ("yes: 2", ": not a recipe (line 1: yes as a key: keys are text)"),
        ("? [a]\n: 2", ": not a recipe (line 1: a list or block as a key: keys are text)"),
        ("name: !!binary aGk=", ": not a recipe (not a plain value (Object of type bytes is not JSON serializable))"),
        ("name: !!set {a, b}", ": not a recipe (not a plain value (Object of type set is not JSON serializable))"),
        ("name: !!timestamp 2024-03-01", ": not a recipe (not a plain value (Object of type date is not JSON seriali"),
        ("a: &a {b: *a}", ": not a recipe (Circular reference detected)"),
        ("a: " + "[" * 5000 + "]" * 5000, ": not a recipe (nested too deeply, or contains itself)"),
        ("steps: " + "9" * 5000, ": not a recipe (Exceeds the limit (4300 digits)"),
        ("name: *x", ": not a recipe (line 1: found undefined alias 'x')"),
        ("a: 1\n---\nb: 1", ": not a recipe (line 2: but found another document)"),
        ("name: \x01", ": not a recipe (unacceptable character #x0001"),
        ("\tname: x", ": not a recipe (line 1: found character '\\t' that cannot start any token)"),
        (b"name: \xff", ": not UTF-8 (invalid start byte at byte 6)"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path: Path, text: str | bytes, message: str):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert complaint(TrainConfig, path).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    "text", ["stepz: 1", "steps: x", "algorithm: {name: grppo}", "algorithm: {clip: 0.1}", "sandbox: {level: seald}"]
)
def test_a_mistake_in_a_recipe_names_the_recipe(tmp_path: Path, text: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert complaint(TrainConfig, path).endswith(f" (from {path})")


def test_a_mistake_on_the_command_line_does_not_blame_the_recipe(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text("steps: 5")
    assert "from" not in complaint(TrainConfig, path, "steps=x")


def test_a_mistake_in_a_short_option_names_the_option():
    with pytest.raises(ConfigError, match=r"steps = -1: must be greater than 0 \(from --steps\)$"):
        load(TrainConfig, None, [Override("steps", -1, "--steps")])


def test_a_dotted_key_in_a_recipe_says_how_to_write_it(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text("sft.steps: 5")
    assert "sft.steps: no such setting; in a recipe, write the parts as blocks inside each other" in complaint(
        TrainConfig, path
    )


def test_a_misspelt_key_is_blamed_before_what_it_leaves_out():
    message = complaint(TrainConfig, None, "workers={actr: main, sampler: other}")
    assert message == "workers.actr: no such setting; did you mean workers.actor?"


@pytest.mark.parametrize(("name", "rule"), [("nothing.yaml", "no such file"), (".", "is a folder; give a file")])
def test_a_recipe_that_is_not_there_is_bad_input(tmp_path: Path, name: str, rule: str):
    with pytest.raises(InputError, match=f"recipe .*: {rule}"):
        load(TrainConfig, tmp_path / name)


def test_settings_of_training_are_none_of_judging():
    assert complaint(JudgeRunConfig, None, "optimizer.learning_rate=1").startswith("optimizer: no such setting; known")


@pytest.mark.parametrize(
    ("level", "minimum"),
    [
        ("auto", "sealed"),
        ("auto", "open"),
        ("sealed", "sealed"),
        ("sealed", "open"),
        ("open", "open"),
        ("restricted", "open"),
    ],
)
def test_a_level_that_reaches_the_minimum_is_accepted(level: str, minimum: str):
    settings = [parse_override(f"sandbox.level={level}"), parse_override(f"sandbox.minimum_level={minimum}")]
    assert load(JudgeRunConfig, None, settings).config.sandbox.level == level


@pytest.mark.parametrize(("level", "minimum"), [("open", "sealed"), ("open", "restricted"), ("restricted", "sealed")])
def test_a_level_below_the_minimum_is_a_contradiction(level: str, minimum: str):
    message = complaint(JudgeRunConfig, None, f"sandbox.level={level}", f"sandbox.minimum_level={minimum}")
    assert message.endswith(f'below minimum_level "{minimum}"; to accept it set sandbox.minimum_level={level}')


def test_importance_sampling_needs_the_probabilities_of_the_sampler():
    message = complaint(TrainConfig, None, "algorithm.correction.name=truncated", "sampler.top_p=0.9")
    assert message.startswith("algorithm.correction.name = truncated: with sampler.top_p = 0.9 tokens are not sampled")


@pytest.mark.parametrize("name", ["reinforce_plus_plus", "ppo"])
def test_an_algorithm_that_does_not_compare_a_group_takes_groups_of_one(name: str):
    settings = [parse_override(f"algorithm.name={name}"), parse_override("group_size=1")]
    assert load(TrainConfig, None, settings).config.group_size == 1


def test_a_baseline_of_the_group_needs_a_group():
    settings = ("algorithm.name=reinforce_plus_plus", "algorithm.baseline=group", "group_size=1")
    assert complaint(TrainConfig, None, *settings).startswith("group_size = 1: reinforce_plus_plus compares rollouts")


def test_the_sampler_may_have_a_process_for_each_rollout_of_a_step():
    pools = "pools={main: {}, other: {executor: spawn, processes: %d}}"
    settings = [parse_override(text) for text in (pools % 512, "workers.sampler=other")]
    load(TrainConfig, None, settings)
    message = complaint(TrainConfig, None, pools % 513, "workers.sampler=other")
    assert message.startswith(
        "pools.other.processes = 513: a step has 512 rollouts (problems_per_step x group_size), less"
    )


def test_a_block_that_is_left_out_begins_with_its_first_setting():
    settings = [parse_override("trainer.lora.rank=4"), parse_override("trainer.lora.alpha=8")]
    assert load(TrainConfig, None, settings).config.trainer.lora == LoraConfig(rank=4, alpha=8.0)


def test_a_reference_that_the_actor_is_cannot_be_placed():
    message = complaint(TrainConfig, None, "trainer.lora={}", "workers.reference=main")
    assert message.startswith("workers.reference = 'main': with trainer.lora the actor without its adapter is the ref")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("num_generations=8", "num_generations: no such setting; did you mean group_size?"),
        ("actor_rollout_ref.rollout.n=8", "actor_rollout_ref.rollout.n: no such setting; did you mean group_size?"),
        ("algorithm.adv_estimator=grpo", "algorithm.adv_estimator: no such setting; did you mean algorithm.name?"),
        ("adv_estimator=grpo", "adv_estimator: no such setting; did you mean algorithm.name?"),
        ("init_kl_coef=0.1", "init_kl_coef: no such setting; did you mean algorithm.kl_coefficient?"),
        ("algo.kl.init_coef=0.1", "algo.kl.init_coef: no such setting; did you mean algorithm.kl_coefficient?"),
        ("data={max_response_length: 9}", "data.max_response_length: no such setting; did you mean sampler.max_new_"),
        ("orchestrator.batch_size=9", "orchestrator.batch_size: no such setting; did you mean problems_per_step?"),
        ("trainer.optim.lr=1", "trainer.optim.lr: no such setting; did you mean optimizer.learning_rate?"),
        ("actor_rollout_ref.rollout.odd=8", "actor_rollout_ref: no such setting; known are algorithm, "),
    ],
)
def test_the_name_of_a_setting_elsewhere_suggests_the_setting_here(setting: str, message: str):
    assert complaint(TrainConfig, None, setting).startswith(message)


def test_every_name_in_the_table_of_other_frameworks_suggests_a_setting_here():
    ours = {name.partition(".")[0] for name in TrainConfig.model_fields}
    for name, setting in ours_by_theirs().items():
        if "." in name and name.partition(".")[0] not in ours:
            assert f"{name}: no such setting; did you mean {setting}" in complaint(TrainConfig, None, f"{name}=1"), name
