"""Settings of the task. Must not import torch."""

from typing import Literal

from autoclave.config import TaskSettings


class ShortConfig(TaskSettings):
    """Short programs that pass tests."""

    name: Literal["short"] = "short"
    """The task."""

    template: Literal["plain", "code"] = "plain"
    """`plain`: the statement alone, for the embedded policy. `code`: with instructions, for pretrained models."""

    free_characters: int = 100
    """Characters of a program without a penalty."""
