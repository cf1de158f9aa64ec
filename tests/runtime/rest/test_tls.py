"""Over TLS: the certificate is verified for the name, and keys that a service echoes in any form are taken out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.rest import ServiceConnection
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret
from autoclave.runtime.vault.traces import found_in
from tests.runtime.rest.acting import asked, done, opened, written
from tests.runtime.web_service import WebService

KEY = "sk-real-QmVyeVNlY3JldFZhbHVl0123"
CATALOGUE = {
    "service": "web",
    "operations": {
        "echo": {"method": "GET", "path": "/echo"},
        "post": {"method": "POST", "path": "/echo", "body": {}},
        "post_away": {"method": "POST", "path": "/away"},
    },
}


@pytest.fixture
def service() -> Iterator[WebService]:
    service = WebService()
    yield service
    service.close()


def opened_on(service: WebService, folder: Path, **others: Any) -> Session:
    connection = ServiceConnection(
        base_url=f"https://{service.place}",
        catalogue=written(folder, CATALOGUE),
        secret="web",
        allows_private=True,
        patience_s=0.0,
        queue_s=0.0,
    )
    key = Secret(service="web", value=KEY, hosts=(service.place,), allows_private=True)
    return opened(folder, {"web": connection}, key, **{"verify": service.verify, **others})


def test_a_key_that_is_echoed_in_any_form_is_seen_by_nobody(service: WebService, tmp_path: Path):
    with opened_on(service, tmp_path) as session:
        read = session.plan(asked("echo", "web")).output["stdout"]
        action = done(session, "post", "web", body={"x": 1})
        body = session.journal.standing(action).body
        for told in (read.encode(), repr(body).encode(), *(path.read_bytes() for path in tmp_path.rglob("*.json"))):
            assert found_in(told, {"key": KEY}) == []
        assert "autoclave-hides-key" in read
    assert [each.headers["authorization"] for each in service.asked] == [f"Bearer {KEY}"] * 2
    assert {each.headers["host"] for each in service.asked} == {service.place}


def test_a_service_whose_certificate_is_not_trusted_gets_nothing(service: WebService, tmp_path: Path):
    with opened_on(service, tmp_path, verify=None) as session:
        with pytest.raises(HostError, match="nothing was sent"):
            session.plan(asked("echo", "web"))
        proposal = session.propose(asked("post", "web", body={}))
        with pytest.raises(HostError, match="nothing was sent"):
            session.run(proposal.action, proposal.plan.digest)
    assert service.asked == []


def test_no_redirect_takes_a_key_elsewhere(service: WebService, tmp_path: Path):
    with opened_on(service, tmp_path) as session:
        proposal = session.propose(asked("post_away", "web"))
        with pytest.raises(InputError, match="nothing shows whether it was done; it answered 302"):
            session.run(proposal.action, proposal.plan.digest)  # it may have been done: a user has to check
    assert [each.path for each in service.asked] == ["/away"]
