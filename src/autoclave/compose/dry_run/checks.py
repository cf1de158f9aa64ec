"""Checks of a recipe as it is on this host, before anything is made small."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import huggingface_hub.constants
from transformers import PretrainedConfig

from autoclave.compose.host import build_judge
from autoclave.compose.preflight import Check, preflight, report
from autoclave.config import ProblemFilesConfig, TrainConfig
from autoclave.core import ConfigError, HostError, InputError, IsolationError
from autoclave.judge import Judge
from autoclave.models import load_architecture
from autoclave.problems import ProblemSets


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

        Raises:
            InputError: what is wrong on whatever host.
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

    Raises:
        InputError: settings or files cannot be used, on whatever host.
        IsolationError: programs cannot be run as the settings say.
    """
    found = Findings()
    paths = [path for path in (config.model.path, config.critic.path, config.reward_model.path) if path]
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
    try:
        with build_judge(config.judge, config.sandbox) as judge:
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
    """Result of the checks of a recipe's problem files."""
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
