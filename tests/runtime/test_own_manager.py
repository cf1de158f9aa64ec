"""The example of a manager passes the suite for managers, and a session finds it by its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.core import HostError
from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.interface import Manager
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave_testing.managers import ManagerConformance, Resource
from examples.own_manager.json_values import JsonValues
from tests.runtime.trees import done


@pytest.fixture
def values(tmp_path: Path) -> Path:
    (tmp_path / "values.json").write_text('{"greeting": "hello", "other": [1]}')
    return tmp_path / "values.json"


class TestJsonValues(ManagerConformance):
    @pytest.fixture
    def resource(self, values: Path) -> Resource:
        def content() -> object:
            return json.loads(values.read_text())

        def open_manager(state: Path) -> Manager:
            return JsonValues({"path": str(values)}, state)

        given = [("greeting", "bye"), ("new", {"a": 1}), ("greeting", None), ("other", 2)]
        operations = [{"do": "set_value", "key": key, "value": value} for key, value in given]
        return Resource(open_manager, operations, content, lambda: values.write_text('{"greeting": "theirs"}'))


def test_a_manager_is_found_by_its_entry_point(root: Path, values: Path, monkeypatch: pytest.MonkeyPatch):
    state = root.parent / "state"
    state.mkdir(mode=0o700)
    save_connections(state, Connections(managers={"json_values": {"path": str(values)}}))
    with pytest.raises(HostError, match="no installed package has it"):
        open_session(root, state)
    info = root.parent / "installed/json_values-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: json-values\nVersion: 0.1\n")
    entry = "json_values = examples.own_manager.json_values:JsonValues"
    (info / "entry_points.txt").write_text(f"[autoclave.managers]\n{entry}\n")
    monkeypatch.syspath_prepend(str(info.parent))
    with open_session(root, state) as session:
        session.permissions.grant(Grant(resources=("values/**",), verbs=("*",)))
        action = done(session, do="set_value", key="greeting", value=None)
        assert json.loads(values.read_text()) == {"other": [1]}
        session.undo(action)
    assert json.loads(values.read_text()) == {"greeting": "hello", "other": [1]}
