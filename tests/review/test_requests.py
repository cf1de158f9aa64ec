"""Requests to services are shown as the journal has them: with their answers, and without keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.vault import KeyFile, Vault
from tests.runtime.rest.acting import KEY, connection, secret, written
from tests.runtime.rest.odd_service import CATALOGUE, OddService

from .conftest import served


def test_a_request_is_shown_with_its_answer_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    root, state = tmp_path / "project", tmp_path / "state"
    root.mkdir()
    state.mkdir(mode=0o700)
    with OddService(items={"7": {"title": "first"}}) as service:
        vault = Vault(tmp_path / "vault", KeyFile(tmp_path / "vault.key"))
        vault.add(secret(service.port, service="odd", place="header", name="Authorization"))
        settings = {"catalogue": written(tmp_path, CATALOGUE), "secret": "odd", "queue_s": 0.0, "scheme": "Bearer"}
        services = {"odd": connection(service.port, **settings)}
        save_connections(state, Connections(vault=VaultPlace(path=str(tmp_path / "vault")), services=services))
        with open_session(root, state) as session:
            everything = Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE)
            session.permissions.grant(everything)
        with served(root, state) as reviewed:
            arguments = {"id": "7", "body": {"title": "<b>second</b>", "cost": 1}}
            (action,) = reviewed.run({"do": "request", "service": "odd", "operation": "put", "arguments": arguments})
            request, resource = reviewed.changes(action)
            assert (request["verb"], request["path"]) == ("put", "odd: PUT /items/7")
            assert json.loads(request["body"]) == {"title": "<b>second</b>", "cost": 1}
            assert request["answer"]["status"] == 200
            changed = [(sign, text.strip()) for sign, *_, text in resource["lines"] if sign in "+-" and "title" in text]
            assert changed == [("-", '"title": "first"'), ("+", '"title": "<b>second</b>"')]
            assert any(headers["authorization"] == f"Bearer {KEY}" for *_, headers in service.requests)
            assert KEY not in reviewed.client.get(f"/api/actions/{action}").text  # though the service repeats it
            assert reviewed.lines()[action]["guarantee"] == "equivalent"
            assert reviewed.post("preview", actions=[action])["guarantee"] == "equivalent"
            reviewed.post("undo", actions=[action])
            assert service.items == {"7": {"title": "first"}}
