"""A recipe in miniature: its algorithm, schedule, engine and pools, with a tiny model, short problems and few steps."""

import copy
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PretrainedConfig

from autoclave.compose.libraries import settle_libraries
from autoclave.compose.warm_start import fine_tune
from autoclave.config import (
    EngineConfig,
    EngineSettings,
    ModelConfig,
    OptimizerConfig,
    SftConfig,
    TinyModelConfig,
    TrainConfig,
    VllmEngineConfig,
)
from autoclave.config.training import BUILT_IN_PROBLEMS, SHARDED
from autoclave.core import AnswerTests, CallCase, CallTests, ConfigError, Problem, StdinCase, StdinTests
from autoclave.core.json import to_plain
from autoclave.models import HeadModel, Policy, build_tiny_policy, load_policy, save_model
from autoclave.problems import ProblemSets

TINY = TinyModelConfig(hidden_size=64, layers=2, heads=2, vocabulary=768, context=512)
"""Shape of all models of a dry run."""
LONGEST = 96
"""Tokens of the longest response in training; a right one has 11 to 30, as the tokenizer of the family cuts it."""
ROLLOUTS = 16
"""Of a step."""
NUM_PROBLEMS = 8
_NUM_TESTS = 20
_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "max_position_embeddings",
)  # fmt: skip
_SPARE_TOKENS = 64
"""That the tokenizers of some families add when they are loaded."""
_LEARNS = SftConfig(steps=120, batch_size=16, optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=5))
"""Settings of the stand-in for a pretrained model."""


def shrunk(config: TrainConfig, folder: Path, *, local_judge: bool = False, is_llama: bool = False) -> TrainConfig:
    """The settings of a dry run of `config`, with problems and models in `folder`; see `write_parts`.

    What is not named here is that of the recipe.

    Args:
        folder: of problems and models.
        local_judge: a judge of this machine takes the place of servers.
        is_llama: the model is a Llama, because the family of the recipe's is not known.

    Raises:
        ValidationError: the schema has a rule that this function does not know.
    """
    tree = config.model_dump(mode="json")
    _cap(tree["evaluation"], every=2, samples=1, final_samples=2, problems=4)
    _cap(tree["checkpoint"], every=1)
    _cap(tree, minibatches=2, group_size=4, micro_batch_tokens=512)
    _cap(tree["health"], overfit_every=1)
    minibatches, group = tree["minibatches"], tree["group_size"]
    tree["problems_per_step"] = minibatches * max(4 // minibatches, ROLLOUTS // (2 * group))
    if has_files(config):
        tree["problems"] = {"name": "files", **{part: str(folder / f"{part}.jsonl") for part in ("train", "heldout")}}
    tree["health"]["actions"] = dict.fromkeys(tree["health"]["actions"], "alert")  # limits are for the real model
    tree["loggers"] = []
    tree["sampler"]["engine"] = _engine(config.sampler.engine)
    _shrink_models(tree, folder, is_llama=is_llama)
    _shrink_lengths(tree, config)
    _shrink_pools(tree, config)
    if tree["alignment"]:
        _shrink_alignment(tree["alignment"])
    if local_judge and tree["judge"]["backend"] == "remote":
        tree["judge"] = {}
    return TrainConfig.model_validate_json(json.dumps(tree), strict=True)


def has_files(config: TrainConfig) -> bool:
    """True if files stand in for the problems of a dry run; those that a package generates for its own task stay."""
    return config.problems.name in (*BUILT_IN_PROBLEMS, "files", "none")


def _cap(block: dict[str, Any], **limits: int) -> None:
    """Lower settings of `block` to `limits`; null and 0 keep their meaning."""
    block |= {name: min(block[name], limit) for name, limit in limits.items() if block.get(name) is not None}


def _engine(engine: EngineConfig) -> dict[str, Any]:
    if not isinstance(engine, EngineSettings) or (engine.name == "vllm" and not find_spec("vllm")):
        return {"name": "transformers", "batch_size": 8}
    if isinstance(engine, VllmEngineConfig):
        return {"name": "vllm", "batch_size": 8, "cache_mb": 64, "prefix_caching": engine.prefix_caching}
    return engine.model_dump(mode="json") | {"batch_size": 8}


def _shrink_models(tree: dict[str, Any], folder: Path, *, is_llama: bool) -> None:
    """All models are tiny, on the CPU; where the recipe names one, a folder stands in."""
    tree["model"]["device"] = "cpu"
    tree["trainer"] |= {"cpu_offload": False, "liger": False, "compile": False}
    if not tree["model"]["path"]:
        tree["model"]["tiny"] = TINY.model_dump()
    if tree["sft"]["steps"] != 0:
        _cap(tree["sft"], batch_size=16, batch_tokens=512, checkpoint_every=50)
        tree["sft"]["repair_share"] = 0.0  # the problems are from files
        if not tree["model"]["path"]:
            tree["sft"] |= {"steps": 2 * (_LEARNS.steps or 0), "epochs": None}
        else:
            tree["sft"] |= {"epochs": 1} if tree["sft"]["epochs"] else {"steps": 4}
    if not tree["model"]["path"]:
        if tree["teacher"]["path"]:  # which has not the tokenizer that is made for the short problems
            tree["teacher"]["path"], tree["algorithm"]["advantage"] = "", None
        return
    tree["model"]["path"] = str(folder / "model")
    if is_llama and tree["trainer"]["lora"]:
        tree["trainer"]["lora"]["targets"] = []  # which may be names of another family
    for name in ("critic", "reward_model", "teacher"):
        if tree[name]["path"]:
            tree[name]["path"] = str(folder / name)


def _shrink_lengths(tree: dict[str, Any], config: TrainConfig) -> None:
    """Limits of responses keep their proportions, stages their order; there are steps enough to reach the last."""

    def scaled(limit: int) -> int:
        return max(4, limit * LONGEST // config.longest_trained)

    tree["sampler"]["max_new_tokens"] = LONGEST
    for block in filter(None, (tree["evaluation"], tree["alignment"])):
        block["max_new_tokens"] = block["max_new_tokens"] and scaled(block["max_new_tokens"])
    steps = max(3, config.schedule.staleness + 2)
    if schedule := tree["length_schedule"]:
        stages = schedule["stages"]
        for number, stage in enumerate(stages):
            shortest = stages[number - 1]["max_new_tokens"] + 1 if number else 1
            stage["max_new_tokens"] = max(shortest, scaled(stage["max_new_tokens"]))
        by_steps = schedule["advance"]["name"] == "steps"
        if by_steps:
            schedule["advance"]["steps"] = list(range(1, len(stages)))
        else:
            schedule["advance"] |= {"window": 2, "patience": 1, "tolerance": 0.99}
        in_stage = 1 if by_steps else 4 + config.schedule.staleness  # steps of a batch begun before do not count
        steps = max(steps, in_stage * (len(stages) - 1) + 2)
    tree["steps"] = steps


def _shrink_pools(tree: dict[str, Any], config: TrainConfig) -> None:
    """As many processes as this machine has cores, but two where the recipe has several: then models are sharded."""
    cores = len(os.sched_getaffinity(0))
    most = min(ROLLOUTS // 2, max(min(2, cores), cores // len(tree["pools"])))
    for pool in tree["pools"].values():
        pool["processes"] = min(pool["processes"], most)
        if pool["executor"] == "ray" and not find_spec("ray"):
            pool["executor"] = "spawn"
        if pool["executor"] != "inline":
            pool["devices_per_process"] = 0
    homes = config.workers.places()
    processes = {group: tree["pools"][homes[group]]["processes"] for group in SHARDED}
    if set(processes.values()) == {1}:
        del tree["trainer"]["sharding"]  # needs several processes
    for group in ("critic", "reference"):
        if processes[group] == 1:
            tree["trainer"][f"{group}_sharding"] = None
    size = tree["trainer"]["shard_size"]
    if (size and any(number % min(size, number) for number in processes.values())) or set(processes.values()) == {1}:
        tree["trainer"]["shard_size"] = 0


def _shrink_alignment(alignment: dict[str, Any]) -> None:
    """The problems of a dry run have alignment samples from the first step."""
    _cap(alignment, evaluation_items=4)
    for name, least in {"program_characters": 200, "input_characters": 8, "value_characters": 8}.items():
        alignment["limits"][name] = max(alignment["limits"][name], least)
    if alignment["growth"]:
        alignment["growth"]["steps"] = 1


def write_parts(config: TrainConfig, folder: Path, architecture: PretrainedConfig | None) -> None:
    """Write the problems and models that the settings of a dry run name; models are of the family of `architecture`.

    The model imitates a right and a wrong solution of each problem, so that some responses pass and others fail.
    """
    settle_libraries(config)
    for name, problems in (("train", _problems(config, 0)), ("heldout", _problems(config, 1))):
        lines = "".join(json.dumps(to_plain(problem)) + "\n" for problem in problems)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    if not config.model.path:
        return
    sets = ProblemSets(config)
    texts = (f"{message['content']}\n{each.response}" for each in sets.demonstrations() for message in each.messages)
    policy = build_tiny_policy(TINY, texts, seed=config.seed, device="cpu")
    if architecture:
        policy = _of_family(architecture, policy, config.seed)
    policy.tokenizer.chat_template = config.model.chat_template or policy.tokenizer.chat_template
    save_model(policy, folder / "untrained")
    model = ModelConfig(path=str(folder / "untrained"), device="cpu", threads=config.model.threads)
    settings = TrainConfig(seed=config.seed, problems=config.problems, task=config.task, model=model, sft=_LEARNS)
    fine_tune(settings, Path(config.model.path), say=lambda line: None, problems=sets)
    for path in filter(None, (config.critic.path, config.teacher.path)):
        save_model(load_policy(config.model.path, device="cpu"), Path(path))
    if config.reward_model.path:
        _write_reward_model(policy.model.config, policy.tokenizer, config)


def _of_family(architecture: PretrainedConfig, tiny: Policy, seed: int) -> Policy:
    """A policy of another family as small as `tiny`, with random weights."""
    shape = copy.deepcopy(architecture)
    for name in _SIZES:
        if getattr(shape, name, None) is not None:
            setattr(shape, name, getattr(tiny.model.config, name))
    shape.vocab_size = tiny.model.config.vocab_size + _SPARE_TOKENS
    if getattr(shape, "layer_types", None):
        shape.layer_types = shape.layer_types[: TINY.layers]
    shape.pad_token_id, shape.eos_token_id = tiny.tokenizer.pad_token_id, tiny.tokenizer.eos_token_id
    shape.bos_token_id, shape.dtype = None, torch.float32
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Policy(AutoModelForCausalLM.from_config(shape).eval(), tiny.tokenizer)


def _write_reward_model(shape: Any, tokenizer: Any, config: TrainConfig) -> None:
    shape.num_labels = 1
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        try:
            model = AutoModelForSequenceClassification.from_config(shape)
        except ValueError:
            raise ConfigError(
                "reward_model.path: a dry run makes a reward model of the family of the policy, and transformers has "
                f"no sequence classifier of {shape.model_type}. Fix: reward_model.path= for the dry run"
            ) from None
    save_model(HeadModel(model, tokenizer), Path(config.reward_model.path))


def _problems(config: TrainConfig, offset: int) -> list[Problem]:
    """Sums of an input and a number, by programs and by functions; or, for mathematics, of two numbers.

    `offset` makes problems with the same solutions and other tests.
    """
    make = _mathematics if config.task.asks_for_answers else _program
    return [make(number, offset, config) for number in range(10, 10 + NUM_PROBLEMS)]


def _mathematics(number: int, offset: int, config: TrainConfig) -> Problem:
    form = {"answer_line": "Answer: {}", "whole": "{}"}.get(getattr(config.task, "answer", ""), r"\boxed{{{}}}")
    return Problem(
        id=f"miniature-{number}",
        statement=f"What is {number} + 1?" if offset else f"Add 1 to {number}.",
        tests=AnswerTests("answer", str(number + 1), "math"),
        solutions=[form.format(number + 1), form.format(number + 2)],
    )


def _program(number: int, offset: int, config: TrainConfig) -> Problem:
    """Its second solution is wrong. Inputs differ in length, so that a choice among the longest is one."""
    values = [10 ** (index % 4) + index + offset for index in range(_NUM_TESTS)]
    if number % 2:
        statement = f"Write add(a) that returns a plus {number}."
        form = "def add(a):\n    b = a + {}\n    return b"
        tests = CallTests("call", "add", [CallCase([value], value + number) for value in values])
    else:
        statement = f"Read a number and print it plus {number}."
        form = "a = int(input())\nb = a + {}\nprint(b)"
        tests = StdinTests("stdin", [StdinCase(f"{value}\n", f"{value + number}\n") for value in values])
    return Problem(
        id=f"miniature-{number}",
        statement=statement,
        tests=tests,
        solutions=[form.format(number), form.format(number + 1)],
    )
