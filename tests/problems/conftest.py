"""The default synthetic problems and their demonstrations, built once."""

from __future__ import annotations

import pytest

from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave.problems import Demonstration, SyntheticProblems, build_synthetic, demonstrations


@pytest.fixture(scope="session")
def synthetic() -> SyntheticProblems:
    return build_synthetic(SyntheticConfig())


@pytest.fixture(scope="session")
def shown() -> list[Demonstration]:
    return demonstrations(SyntheticConfig(), SftConfig())
