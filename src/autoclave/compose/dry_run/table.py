"""The table of a dry run: which parts of a recipe were exercised, which were not, and why."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import huggingface_hub.constants
from transformers import PretrainedConfig

from autoclave.algorithms import build_algorithm
from autoclave.compose.dry_run.miniature import has_files
from autoclave.compose.host import build_judge
from autoclave.compose.preflight import Check, preflight, report
from autoclave.config import LoraConfig, ProblemFilesConfig, TrainConfig, TrainerConfig
from autoclave.config.training import SHARDED
from autoclave.core import ConfigError, HostError, InputError, IsolationError
from autoclave.core.files import read_jsonl
from autoclave.core.json import leaves
from autoclave.judge import Judge
from autoclave.models import load_architecture
from autoclave.problems import ProblemSets

State = Literal["exercised", "replaced", "not exercised"]
_PATIENCE_S = 10.0
"""Seconds for which a dry run waits for judge servers, in place of those of a run."""


@dataclass(frozen=True, slots=True)
class Row:
    """A part of a recipe."""

    part: str
    state: State
    detail: str


@dataclass(frozen=True, slots=True)
class Run:
    """Metrics and summary of a run in miniature, with the settings of recipe and miniature."""

    recipe: TrainConfig
    small: TrainConfig
    events: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    found: "Findings"

    def steps_with(self, metric: str, kind: str = "train") -> int:
        """Number of lines of a kind that have `metric`."""
        return sum(event.get(metric) is not None for event in self.events if event["kind"] == kind)

    def num(self, kind: str) -> int:
        return sum(event["kind"] == kind for event in self.events)


def exercised(recipe: TrainConfig, small: TrainConfig, folder: Path, found: "Findings") -> list[Row]:
    """The rows of a dry run whose run in miniature is in `folder`."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    run = Run(recipe, small, [line for _, line in read_jsonl(folder / "metrics.jsonl")], summary, found)
    return rows_of(run)


def rows_of(run: Run) -> list[Row]:
    return [*_data(run), *_sampling(run), *_learning(run), *_trainer(run), *_places(run), *_around(run)]


def describe(rows: Sequence[Row], recipe: TrainConfig, small: TrainConfig) -> str:
    """The table as text, and under it every setting that differs from the recipe's."""
    order: Sequence[State] = ("exercised", "replaced", "not exercised")
    rows = sorted(rows, key=lambda row: order.index(row.state))
    width = max(len(row.part) for row in rows)
    lines = [f"{row.state:<13}  {row.part:<{width}}  {row.detail}" for row in rows]
    changed = [f"  {path}: {before} -> {after}" for path, before, after in changes(recipe, small)]
    return "\n".join([*lines, "settings of the dry run that are not those of the recipe:", *changed])


def to_json(rows: Sequence[Row], recipe: TrainConfig, small: TrainConfig) -> dict[str, Any]:
    return {"parts": [asdict(row) for row in rows], "changed": [list(each) for each in changes(recipe, small)]}


def changes(recipe: TrainConfig, small: TrainConfig) -> list[tuple[str, str, str]]:
    """Path, value in the recipe and value in the dry run of each setting that differs."""
    before, after = (dict(leaves(config.model_dump(mode="json"))) for config in (recipe, small))
    return [
        (path, json.dumps(before.get(path)), json.dumps(after[path]))
        for path in after
        if before.get(path) != after[path]  # keys of a choice that another stands in for are left out
    ]


def _did(part: str, times: int, detail: str, otherwise: str) -> Row:
    """A part that was exercised if it happened at all."""
    return Row(part, "exercised", detail) if times else Row(part, "not exercised", otherwise)


def _data(run: Run) -> Iterator[Row]:
    recipe, found = run.recipe, run.found
    if path := recipe.model.path:
        kind = f"a tiny {found.architecture.model_type}" if found.architecture else "a tiny llama"
        rest = f"nothing of it was checked: {found.unread_model}" if found.unread_model else "its settings were checked"
        yield Row("model", "replaced", f"{kind} for {path}, whose weights were not loaded; {rest}")
    else:
        yield Row("model", "replaced", "a smaller embedded policy")
    for name in ("critic", "reward_model", "teacher"):
        if name == "teacher" and recipe.teacher.path and not recipe.model.path:
            yield Row("teacher.path", "not exercised", "the smaller embedded policy has a tokenizer of its own")
        elif path := getattr(recipe, name).path:
            yield Row(f"{name}.path", "replaced", f"a tiny model for {path}")
    if has_files(recipe):
        yield Row("problems", "replaced", f"short ones; of the recipe: {found.problems}")
    else:
        yield Row("problems", "exercised", f"{recipe.problems.name}, of its package")
    if recipe.sft.is_on:
        steps = max((int(event["step"]) for event in run.events if event["kind"] == "sft"), default=0)
        yield _did("warm start", steps, f"{steps} steps logged", "no step was logged")


def _sampling(run: Run) -> Iterator[Row]:
    recipe, small = run.recipe, run.small
    asked, used = recipe.sampler.engine, small.sampler.engine
    if asked.name == used.name:
        yield Row("engine", "exercised", used.name)
    else:
        why = (
            "a dry run asks no server"
            if find_spec(asked.name) or asked.name != "vllm"
            else "vllm is not installed here"
        )
        yield Row("engine", "replaced", f"{used.name} for {asked.name}: {why}")
    if getattr(asked, "tensor_parallel", 1) > 1:
        yield Row("tensor-parallel samplers", "not exercised", "one process holds the tiny model")
    yield Row("response length", "replaced", f"{small.longest_trained} of {recipe.longest_trained} tokens")
    if small.length_schedule:
        stages, reached = len(small.length_schedule.stages), 1 + run.num("length_schedule")
        detail = f"stage {reached} of {stages} was reached"
        yield _did("length schedule", reached == stages, detail, detail)


def _learning(run: Run) -> Iterator[Row]:
    recipe, algorithm = run.recipe, build_algorithm(run.recipe.algorithm)
    steps, trained = run.num("train"), run.steps_with("policy/gradient_norm")
    yield _did("schedule", steps, f"{recipe.schedule.name}, {steps} steps", "no step was done")
    equal = "no step had a gradient: all rewards were equal"
    yield _did("algorithm", trained, f"{recipe.algorithm.label}, {trained} of {steps} steps had a gradient", equal)
    if algorithm.needs_critic:
        learned = run.steps_with("critic/gradient_norm")
        yield _did("critic", learned, f"{learned} steps had a gradient", "no step had a gradient")
    if algorithm.needs_reference:
        yield _did("reference", steps, "log-probs of a reference were computed", "no step was done")
    if recipe.reward_model.path:
        yield _did("reward model", steps, "its scores were added to rewards", "no step was done")
    if recipe.alignment:
        aligned = run.steps_with("alignment/reward")
        rest = "no failed program could be traced within so few steps"
        yield _did("alignment", aligned, f"{aligned} of {steps} steps had alignment samples", rest)
    rewards = [event["reward/mean"] for event in run.events if event["kind"] == "train" and "reward/mean" in event]
    mean = f"{recipe.task.name}, mean reward {sum(rewards) / max(len(rewards), 1):.3f}"
    yield _did("task", len(rewards), mean, "no response had a reward")
    judged = f"sandbox level {run.summary['sandbox_level']}"
    tests = f", tests {getattr(recipe.task, 'tests', 'all')}"
    if run.found.unreachable_judge:
        yield Row("judge", "replaced", f"the local one for servers: {run.found.unreachable_judge}; {judged}{tests}")
    else:
        yield _did("judge", steps, f"{recipe.judge.backend}: {judged}{tests}", "no step was done")


def _trainer(run: Run) -> Iterator[Row]:
    """The settings of the trainer that are not the defaults."""
    defaults, small = TrainerConfig(), run.small.trainer
    for name, value in run.recipe.trainer:
        if name != "sharding" and value != getattr(defaults, name):
            text = f"rank {value.rank}" if isinstance(value, LoraConfig) else f"{value}"
            is_kept = value == getattr(small, name)
            yield _did(f"trainer.{name}", is_kept, text, f"{text}: a dry run computes on the CPU")


def _places(run: Run) -> Iterator[Row]:
    recipe, small = run.recipe, run.small
    homes = [recipe.workers.places()[group] for group in SHARDED]
    if any(recipe.pools[home].processes > 1 for home in homes):
        spread = any(small.pools[home].processes > 1 for home in homes)
        few = "this machine has one core, so there is one process for each model"
        yield _did("sharding", spread, f"{recipe.trainer.sharding}, by FSDP2 on the CPU", few)
    for name, pool in recipe.pools.items():
        mine = small.pools[name]
        detail = f"{mine.executor}, {mine.processes} of {pool.processes} processes"
        if mine.executor == pool.executor:
            yield Row(f"pools.{name}", "exercised", detail)
        else:
            yield Row(f"pools.{name}", "replaced", f"{detail}: {pool.executor} is not installed here")
    yield Row("GPUs", "not exercised", "a dry run computes on the CPU")


def _around(run: Run) -> Iterator[Row]:
    recipe, published = run.recipe, run.steps_with("publish/mismatch_max")
    yield Row(
        "publish", "exercised", f"weights reached the samplers at each step; {published} were compared by log-probs"
    )
    yield _did("evaluation", run.num("evaluation"), f"{run.num('evaluation')} times", "none was due")
    yield Row("checkpoints", "exercised", "written by the pools above, resumed in one process for the last step")
    names = sorted({str(event["name"]) for event in run.events if event["kind"] == "alert"})
    yield Row(
        "health", "replaced", f"alerts without actions; limits are for the real model: {', '.join(names) or 'no alert'}"
    )
    if recipe.loggers:
        yield Row("loggers", "not exercised", f"nothing was sent to {', '.join(recipe.loggers)}")
    for text in run.found.host:
        yield Row("this machine", "not exercised", f"as it is, the recipe does not start here: {text}")


@dataclass(slots=True)
class Findings:
    """Result of the checks of a recipe as it is."""

    unread_model: str = ""
    """Reason for which the settings of a model cannot be read here."""
    architecture: PretrainedConfig | None = None
    """That of the policy, where it can be read."""
    problems: str = "generated ones, which were not made"
    unreachable_judge: str = ""
    """Reason for which no server judges."""
    host: list[str] = field(default_factory=list[str])
    """Parts of the recipe that the host does not have."""

    def sort(self, checks: Sequence[Check]) -> None:
        """Run `checks`; keep what the host lacks, and what a model that is not here leaves open.

        Raises InputError: what is wrong on whatever host.
        """
        wrong: list[Check] = []
        for check in checks:
            try:
                check()
            except HostError as error:
                self.host.append(str(error))
            except InputError as error:
                if isinstance(error, ConfigError) or not self.unread_model:
                    wrong.append(partial(_raise, error))
        report(wrong)


def check_recipe(config: TrainConfig, out: Path) -> Findings:
    """Check what can be checked of the whole recipe here: settings, models, problems and judge.

    Raises InputError: settings or files cannot be used, on whatever host. IsolationError: programs cannot be run as the
    settings say.
    """
    found = Findings()
    paths = [
        path for path in (config.model.path, config.critic.path, config.reward_model.path, config.teacher.path) if path
    ]
    try:
        architectures = [load_architecture(path) for path in paths]
        found.architecture = architectures[0] if config.model.path else None
    except InputError as error:
        found.unread_model = str(error).partition(" (")[0]
    with _offline(bool(found.unread_model)):  # else each check would wait for the network again
        preflight(config, out, run=found.sort)
    asked = config.problems
    named = (asked.path, asked.train, asked.heldout) if isinstance(asked, ProblemFilesConfig) else ()
    files = [path for path in named if path]
    missing = [str(path) for path in files if not path.exists()]
    if missing:
        found.problems = f"not on this machine: {', '.join(missing)}"
    sets = ProblemSets(config) if files and not missing else None
    remote = config.judge.remote
    quick = remote.model_copy(update={"patience_s": min(remote.patience_s, _PATIENCE_S)})
    try:
        with build_judge(config.judge.model_copy(update={"remote": quick}), config.sandbox) as judge:
            if sets:
                found.problems = _check_problems(config, sets, judge)
    except IsolationError:
        raise
    except HostError as error:
        if config.judge.backend == "local":
            raise
        found.unreachable_judge = str(error)
    return found


def _check_problems(config: TrainConfig, sets: ProblemSets, judge: Judge) -> str:
    for problem in (*sets.train, *sets.heldout):
        judge.check(problem)
    if config.sft.is_on or not config.model.path:
        sets.demonstrations()
    return f"{len(sets.train)} to learn from and {len(sets.heldout)} held out were read, and the judge takes them"


@contextmanager
def _offline(is_on: bool) -> Generator[None]:
    """Let the hub's library look at its cache alone."""
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    huggingface_hub.constants.HF_HUB_OFFLINE = before or is_on
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = before


def _raise(error: Exception) -> None:
    raise error
