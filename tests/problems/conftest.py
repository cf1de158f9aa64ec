"""The default curriculum and its demonstrations, built once."""

from __future__ import annotations

import pytest

from autoclave.config.problems import CurriculumConfig
from autoclave.config.training import SftConfig
from autoclave.problems import Curriculum, Demonstration, build_curriculum, demonstrations


@pytest.fixture(scope="session")
def curriculum() -> Curriculum:
    return build_curriculum(CurriculumConfig())


@pytest.fixture(scope="session")
def shown() -> list[Demonstration]:
    return demonstrations(CurriculumConfig(), SftConfig())
