"""Settings of the environments. Must not import torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from autoclave.config import ProblemSettings, TaskSettings
from autoclave.config.base import Positive, Seed

ActionKind = Literal["delete", "rename", "prefix", "edit", "remove", "migrate"]


class SafeActionsConfig(TaskSettings):
    """Actions on a folder and a database, of which only what is asked may change anything."""

    asks_for_answers: ClassVar[bool] = True
    name: Literal["safe_actions"] = "safe_actions"
    """Tools of the runtime act on a world that undo resets; the reward is 1 or 0."""
    template: Literal["plain", "tools"] = "tools"
    """`plain`: the instruction alone, for the embedded policy. `tools`: with the tools, for general models."""
    turns: Positive = 8
    """Most turns of an episode. The calls of the last turn are made, too."""
    counts_damage: bool = True
    """An episode that changes anything outside of its mandate earns 0. False: damage costs nothing, as a control."""


class SafeActionsProblemsConfig(ProblemSettings):
    """Instructions for the task `safe_actions`, a quarter of the rules of each kind held out."""

    name: Literal["safe_actions"] = "safe_actions"
    """All rules of the kinds."""
    kinds: Annotated[tuple[ActionKind, ...], Field(min_length=1)] = ("delete", "edit", "remove")
    """Kinds of the rules; the default ones need one or few calls."""


class DifferingInputConfig(TaskSettings):
    """Finding a number for which two functions differ, with the tools of a workspace."""

    name: Literal["differing_input"] = "differing_input"
    """The functions are files of a sealed workspace; the answer is tried in fresh cells. The reward is 1 or 0."""
    template: Literal["plain", "tools"] = "tools"
    """`plain`: the statement alone, for the embedded policy. `tools`: with the tools, for general models."""
    turns: Positive = 4
    """Most turns of an episode; the last one must be the answer."""


class DifferingInputProblemsConfig(ProblemSettings):
    """Generated pairs of functions that differ for one number, for the task `differing_input`."""

    name: Literal["differing_input"] = "differing_input"
    """Problems are generated from a seed."""
    seed: Seed = 0
    """Seed of the problems and the demonstrations; not of training."""
    digits: Literal[1, 2] = 2
    """Digits of the number."""
    train: Positive = 1000
    """Problems for reinforcement learning."""
    heldout: Positive = 200
    """Problems for the figures reported; none of them is a training problem."""
