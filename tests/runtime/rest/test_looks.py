"""What a service shows is believed where it says something, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import asked, connection, done, opened
from tests.runtime.rest.catalogues import written
from tests.runtime.rest.odd_service import CATALOGUE, OddService

S = ActionState


@pytest.fixture
def service() -> Iterator[OddService]:
    with OddService() as service:
        yield service


def opened_on(service: OddService, folder: Path, **settings: Any) -> Session:
    given = {"catalogue": written(folder, CATALOGUE), "secret": "", "hold_s": 0.0, **settings}
    return opened(folder, {"odd": connection(service.port, **given)})


@pytest.fixture
def odd(service: OddService, tmp_path: Path) -> Iterator[Session]:
    with opened_on(service, tmp_path) as session:
        yield session


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_a_look_that_is_refused_with_a_good_status_says_nothing_of_what_is_there(odd: Session, service: OddService):
    service.lamps["a"], service.num_refused_looks = False, 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.propose(asked("on", "odd", body={"id": "a"}))
    assert service.lamps == {"a": False}
    action = done(odd, "on", "odd", body={"id": "a"})
    service.num_refused_looks = 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.undo(action)
    odd.undo(action)
    assert service.lamps == {"a": False}


def test_what_the_catalogue_says_means_absence_does(odd: Session):
    assert "cannot be taken back" in odd.plan(asked("on", "odd", body={"id": "nowhere"})).changes[0]
