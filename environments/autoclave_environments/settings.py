"""Settings of the environments. Must not import torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from autoclave.config import ProblemSettings, TaskSettings
from autoclave.config.base import Positive

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
