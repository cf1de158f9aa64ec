"""Messages between the sampler pool and a worker that holds an engine; loads no model library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoclave.core import Completion
from autoclave.rollout import EngineStats, Request


@dataclass(frozen=True, slots=True)
class StepInput:
    """Input of an engine's step."""

    batches: tuple[Mapping[int, Request], ...] = ()
    """Requests to take on."""
    aborted: tuple[int, ...] = ()
    """Numbers of requests to end."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Output of an engine's step."""

    done: list[tuple[int, Completion]]
    stats: EngineStats
