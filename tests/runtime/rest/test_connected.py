"""Services as `connections.yaml` has them: keys out of the vault, a model that is asked, proofs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autoclave.cli.act import act
from autoclave.core import InputError
from autoclave.runtime.connections import Connections, ModelPlace, VaultPlace, save_connections
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Plan
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.vault import KeyFile, Secret, Vault
from tests.evaluation.chat_server import ChatServer
from tests.runtime.rest.acting import Reader, connection, done, secret
from tests.runtime.rest.test_compensations import RIGHT, change, with_undo
from tests.runtime.test_proposals import calling


@pytest.fixture
def model() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "I do not know")
    yield server
    server.close()


@pytest.fixture
def place(kinto: int, reader: Reader, model: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`project`, and what is connected: Kinto without a compensating request of a change, and a model."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "project").mkdir()
    vault = Vault(tmp_path / "vault", KeyFile(tmp_path / "vault.key"))
    vault.add(secret(kinto))
    vault.add(Secret(service="model", value="k-of-the-model-0123456789", hosts=("127.0.0.1",)))
    connect(
        tmp_path,
        services={"kinto": connection(kinto, catalogue=with_undo(tmp_path, "patch_record"), queue_s=0.0)},
        model=ModelPlace(endpoint=model.url, name="m", secret="model"),
    )
    reader.put("one", title="first")
    return tmp_path


def connect(folder: Path, **connections: Any) -> None:
    state = folder / ".autoclave-project"
    state.mkdir(mode=0o700, exist_ok=True)
    save_connections(state, Connections(vault=VaultPlace(path=str(folder / "vault")), **connections))


def opened(folder: Path) -> Session:
    session = open_session(folder / "project")
    if not session.permissions.grants():
        session.permissions.grant(Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session


def commanded(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(act, [*words, "--root", str(folder / "project")])


def proposing(compensation: Mapping[str, Any]) -> dict[str, Any]:
    return calling(("take_back", dict(compensation)))


def test_a_connected_model_is_asked_for_a_compensation_that_is_unknown(place: Path, reader: Reader, model: ChatServer):
    model.trouble = [proposing(RIGHT)]
    with opened(place) as session:
        session.undo(done(session, "patch_record", **change(reader, title="ours")))
        assert reader.records() == {"one": {"title": "first"}}
        assert model.keys == ["Bearer k-of-the-model-0123456789"]
        told = json.dumps(model.bodies)
        assert "delete_record" in told
        assert secret(1).value not in told
        session.undo(done(session, "patch_record", **change(reader, title="more")))
        assert len(model.bodies) == 1
    assert reader.records() == {"one": {"title": "first"}}


@pytest.mark.parametrize(
    ("trouble", "complaint"),
    [
        ("empty", "the model cannot be asked"),
        (401, "401"),
        (
            {"message": {"role": "assistant", "content": "hm"}, "finish_reason": "stop"},
            "proposes no compensating request",
        ),
        (calling(("take_back", {"arguments": {}})), "request: operation: "),
    ],
    ids=["no answer", "no key", "words", "no operation"],
)
def test_without_an_answer_that_is_one_the_action_stands(
    place: Path, reader: Reader, model: ChatServer, trouble: Any, complaint: str
):
    with opened(place) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        model.trouble = [trouble] * 8
        with pytest.raises(InputError, match=complaint):
            session.undo(action)
        assert session.journal.standing(action).state == "executed"
    assert reader.records() == {"one": {"title": "ours"}}


@pytest.fixture
def without_catalogue(place: Path, kinto: int, model: ChatServer) -> Path:
    services = {"kinto": connection(kinto, catalogue="", queue_s=0.0)}
    connect(place, services=services, model=ModelPlace(endpoint=model.url, name="m", secret="model"))
    return place


def free(session: Session, method: str, path: str, **data: Any) -> tuple[str, Plan]:
    """Request what no catalogue has; the action, and its plan."""
    given = {"do": "request", "service": "kinto", "method": method, "path": path, "body": {"data": data}}
    proposal = session.propose(given)
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action, proposal.plan


def test_without_a_catalogue_the_model_is_asked_for_the_compensating_request(
    without_catalogue: Path, reader: Reader, model: ChatServer
):
    path = f"/v1/buckets/{reader.bucket}/collections/notes/records"
    with opened(without_catalogue) as session:
        model.trouble = [proposing({"method": "DELETE", "path": f"{path}/{{$response.body#/data/id}}"})]
        action, plan = free(session, "POST", path, title="ours")
        assert plan.guarantee is Guarantee.NONE
        assert "a model has to propose it, unproven" in plan.changes[0]
        assert len(reader.records()) == 2
        session.undo(action)
        assert set(reader.records()) == {"one"}
        model.trouble = [proposing({"method": "PUT", "path": f"{path}/one", "body": {"data": {"title": "first"}}})]
        action, _ = free(session, "PUT", f"{path}/one", title="ours")
        session.undo(action)
        assert reader.records() == {"one": {"title": "first"}}


@pytest.mark.parametrize(
    ("method", "compensation", "complaint"),
    [
        ("POST", {"method": "DELETE", "path": "{records}"}, "targets .*, not this resource"),
        ("PUT", {"method": "DELETE", "path": "{records}/two"}, "targets .*, not this resource"),
        ("PUT", {"method": "DELETE"}, "should be a valid string|must be"),
        ("PUT", {"method": "DELETE", "path": "{records}/{$response.body#/nothing}"}, "nothing"),
    ],
)
def test_a_compensating_request_of_a_model_is_about_what_the_action_wrote(
    without_catalogue: Path,
    reader: Reader,
    model: ChatServer,
    method: str,
    compensation: dict[str, str],
    complaint: str,
):
    records = f"/v1/buckets/{reader.bucket}/collections/notes/records"
    compensation = {key: each.replace("{records}", records) for key, each in compensation.items()}
    reader.put("two", title="theirs")
    with opened(without_catalogue) as session:
        model.trouble = [proposing(compensation)] * 8
        action, _ = free(session, method, records if method == "POST" else f"{records}/one", title="ours")
        before = reader.records()
        with pytest.raises(InputError, match=complaint):
            session.undo(action)
        assert session.journal.standing(action).state == "executed"
    assert reader.records() == before


def test_compensations_are_shown_judged_and_pinned(place: Path, reader: Reader, model: ChatServer):
    model.trouble = [proposing(RIGHT)]
    with opened(place) as session:
        session.undo(done(session, "patch_record", **change(reader, title="ours")))
    listed = commanded(place, "compensations", "list").output
    assert "put_record -> " in listed
    assert "(pinned)" in listed
    [learnt] = [line for line in listed.splitlines() if "patch_record" in line]
    compensation = learnt.split()[0]
    assert learnt.endswith("proven, proven 1 times")
    assert (
        commanded(place, "compensations", "judge", compensation, "--broken", "--reason", "mails went out").exit_code
        == 0
    )
    assert "quarantined, proven 1 times: mails went out" in commanded(place, "compensations", "list").output
    with opened(place) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(InputError, match="proposes no compensating request"):
            session.undo(action)
    assert commanded(place, "compensations", "pin", compensation, "--reason", "we looked").exit_code == 0
    assert "pinned" in next(
        line for line in commanded(place, "compensations", "list").output.splitlines() if compensation in line
    )
    unknown = commanded(place, "compensations", "pin", "kinto/x/0", "--reason", "we looked")
    assert isinstance(unknown.exception, InputError)
    assert "does not exist" in str(unknown.exception)


def test_a_description_that_cannot_be_read_is_not_connected(place: Path):
    (place / "odd.yaml").write_text("[" * 5000)
    told = commanded(place, "connect", "service", "odd", "base_url=https://x.example", f"catalogue={place}/odd.yaml")
    assert isinstance(told.exception, InputError)
    assert "nested too deeply" in str(told.exception)
    assert "odd" not in commanded(place, "connect", "list").output


def test_a_catalogue_in_the_folder_is_refused(place: Path, kinto: int):
    """A command could say there that something is taken back by what it likes."""
    catalogue = with_undo(place / "project", "patch_record")
    connect(place, services={"kinto": connection(kinto, catalogue=catalogue)})
    with pytest.raises(InputError, match="must be outside of"):
        open_session(place / "project")


def test_the_library_of_requests_does_not_log_what_it_sends(place: Path, reader: Reader, caplog: Any):
    caplog.set_level("DEBUG")
    with opened(place) as session:
        done(session, "patch_record", **change(reader, title="ours"))
    assert not [each for each in caplog.records if each.name.partition(".")[0] in ("httpx", "httpcore")]
