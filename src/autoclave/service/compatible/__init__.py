"""Protocols of other sandboxes at the same server: each request becomes a run or a job."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter

from autoclave.config import Protocol
from autoclave.service.compatible import piston, sandbox_fusion

_MODULES: dict[Protocol, Any] = {"sandbox_fusion": sandbox_fusion, "piston": piston}


def routers_of(protocols: Iterable[Protocol]) -> list[APIRouter]:
    return [_MODULES[name].router for name in dict.fromkeys(protocols)]
