"""Keys go to their service and nowhere else; limits, tokens that end, redirects and odd answers are dealt with."""

from __future__ import annotations

import base64
import copy
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime import permissions
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted, NotUndone
from autoclave.runtime.policy.decision import Decision
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.rest.catalogue import Listing
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.parts import Answer, Call
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import Wire, pause_s
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.runtime.vault import Secret
from autoclave.runtime.vault.traces import found_in
from tests.runtime.rest import odd_service
from tests.runtime.rest.acting import METHODS, asked, before_each, done, manager_of, opened, secret, written
from tests.runtime.rest.odd_service import CATALOGUE, OddService
from tests.runtime.web_service import WebService

S = ActionState
TOKEN = "tk-7hQ2pLw9XcVbN4mZ"


@pytest.fixture
def service() -> Iterator[OddService]:
    with OddService(tokens={TOKEN}) as service:
        yield service


def token(service: OddService, **others: Any) -> Secret:
    plain: dict[str, Any] = {"service": "odd", "value": TOKEN, "hosts": (f"localhost:{service.port}",)}
    return Secret(**{**plain, "allows_private": True, "methods": METHODS, **others})


def opened_on(service: OddService, folder: Path, key: Secret | None = None, catalogue: Any = CATALOGUE, **others: Any):
    return odd_service.opened_on(service, folder, catalogue, key or token(service), **others)


@pytest.fixture
def odd(service: OddService, tmp_path: Path) -> Iterator[Session]:
    with opened_on(service, tmp_path) as session:
        yield session


def put(session: Session, name: str, **data: Any) -> str:
    return done(session, "put", "odd", id=name, body={"cost": 0, **data})


# --- Keys ------------------------------------------------------------------------------------------------------------


def everything(folder: Path, session: Session) -> bytes:
    """All that is written, told or known of a session."""
    files = b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return files + repr([record.body for record in session.journal.records()]).encode() + session.told().encode()


@pytest.mark.parametrize(
    "place",
    [{}, {"place": "query", "name": "api_key"}, {"name": "X-Key"}, {"place": "basic"}],
    ids=["bearer", "query", "header", "basic"],
)
def test_the_key_is_in_requests_and_nowhere_else(service: OddService, tmp_path: Path, place: dict[str, Any]):
    service.tokens = set()
    with opened_on(service, tmp_path, token(service, **place)) as session:
        action = put(session, "x", n=1)
        proposal = session.propose(asked("get", "odd", id="x"))
        session.undo(action)
        service.tokens = {"another"}
        with pytest.raises(InputError) as refused:
            session.propose(asked("get", "odd", id="x"))
        told = everything(tmp_path, session) + f"{proposal.plan} {refused.value}".encode()
        assert found_in(told, {"key": TOKEN}) == []
    sent = repr(service.requests)
    if place.get("place") == "basic":
        assert base64.b64encode(f"us:{TOKEN}".encode()).decode() in sent
    else:
        assert TOKEN in sent


def test_a_key_goes_only_where_its_secret_says(service: OddService, tmp_path: Path):
    for given, rule in (
        ({"hosts": ("localhost",)}, "is no host of a service"),
        ({"methods": ("GET",)}, "is not for this action"),
        ({"paths": ("/files/**",)}, "is not for this action"),
        ({"allows_private": False}, "may not go to private networks"),
    ):
        (folder := tmp_path / rule.replace(" ", "-") / next(iter(given))).mkdir(parents=True)
        key = token(service, **given)
        with opened_on(service, folder, key) as session, pytest.raises(AutoclaveError, match=rule):
            put(session, "x", n=1)
    assert service.items == {}


def test_a_token_that_ends_in_the_middle_is_renewed_and_the_same_request_goes_on(service: OddService, tmp_path: Path):
    keys = {"odd": token(service)}
    renewed: list[str] = []

    def refresh(name: str) -> None:
        renewed.append(name)
        service.tokens = {"tk-fresh-0123456789"}
        keys[name] = keys[name].model_copy(update={"value": "tk-fresh-0123456789"})

    with opened_on(service, tmp_path, key_of=lambda name: keys[name], refresh=refresh) as session:
        action = put(session, "x", n=1)
        service.tokens = {"another"}
        session.undo(action)
    assert renewed == ["odd"]
    assert service.items == {}
    assert [method for method, _, headers in service.requests if method == "DELETE"] == ["DELETE"]


# --- Limits ----------------------------------------------------------------------------------------------------------


def test_a_service_that_asks_to_wait_is_asked_again_in_act_and_in_undo(odd: Session, service: OddService):
    service.num_limited = 2
    action = put(odd, "x", n=1)
    service.num_limited = 2
    odd.undo(action)
    assert service.items == {}
    assert [method for method, _, _ in service.requests if method in ("PUT", "DELETE")] == ["PUT"] * 3 + ["DELETE"] * 3


def test_who_asks_to_wait_too_long_is_not_waited_for_and_nothing_is_done(odd: Session, service: OddService):
    service.num_limited, service.retry_after = 1, "3600"
    with pytest.raises(InputError, match="too many requests; try again in 3600 s"):
        put(odd, "x", n=1)
    assert odd.journal.standings()[-1].state is S.FAILED
    action = put(odd, "x", n=1)
    service.num_limited = 1
    with pytest.raises(NotUndone, match="try again in 3600 s"):
        odd.undo(action)
    assert odd.undo(action) == [action]


def test_who_is_refused_and_then_gone_has_done_nothing(service: OddService, tmp_path: Path):
    def gone(name: str) -> None:
        raise HostError("no network to renew it")

    with opened_on(service, tmp_path, refresh=gone) as session:
        proposal = session.propose(asked("put", "odd", id="x", body={"cost": 0}))
        before_each(session, "execute", lambda: setattr(service, "tokens", {"another"}))
        with pytest.raises(InputError, match="its key is not valid"):
            session.run(proposal.action, proposal.plan.digest)
        assert session.journal.standing(proposal.action).state is S.FAILED
    assert service.items == {}


# --- Places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "rule"),
    [
        ("here", "leads to .*; redirects are not followed. Fix: ask for that"),
        ("elsewhere", "leads to .*127.0.0.1:.*redirects are not followed"),
        ("bomb", "larger than 1048576 bytes"),
        ("large", "larger than 1048576 bytes"),
        ("strange", "encoded as 'br'"),
    ],
)
def test_answers_that_lead_away_or_are_too_large_are_refused(
    service: OddService, tmp_path: Path, where: str, rule: str
):
    with (
        opened_on(service, tmp_path, most_response_bytes=1 << 20) as session,
        pytest.raises(AutoclaveError, match=rule),
    ):
        session.plan(asked("go", "odd", where=where))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://user:key@api.example.com", "must have no user"),
        ("https://api.example.com.", "must be a name or 127.0.0.1"),
        ("https://0x7f000001", "must be a name or 127.0.0.1"),
        ("https://api.example.com/%2e%2e", "read in several ways"),
        ("https://api.example.com?x=1", "must be https"),
        ("https://api.example.com\r\nX: 1", "must be https"),
        ("ftp://api.example.com", "must be https"),
        ("http://api.example.com", "http is for private networks only"),
        ("https://api.example.com:x", "port must be from 1 to 65535"),
    ],
)
def test_a_base_url_has_one_meaning_or_is_refused(url: str, rule: str):
    with pytest.raises(ValidationError, match=rule):
        ServiceConnection(base_url=url)


def test_a_name_that_leads_to_a_private_address_is_refused_whenever_it_does(
    service: OddService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def found(address: str) -> Any:
        return lambda host, port, **_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    settings = {"base_url": f"https://rebound.example:{service.port}", "allows_private": False, "secret": ""}
    with opened_on(service, tmp_path, **settings) as session:
        for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0"):
            monkeypatch.setattr(socket, "getaddrinfo", found(address))
            with pytest.raises(InputError, match="is on a private network"):
                session.plan(asked("get", "odd", id="x"))
    assert service.requests == []


@pytest.mark.parametrize(
    ("operation", "arguments", "rule"),
    [
        ("get", {"id": "../secrets"}, "read in several ways"),
        ("get", {"id": ".."}, "cannot be a part"),
        ("get", {"id": "a/b"}, "read in several ways"),
        ("get", {"id": "a\r\nX: 1"}, "cannot be a part"),
        ("get", {"id": 7}, 'is not of type "string"'),
        ("get", {}, "get.id: is missing"),
        ("get", {"id": "x", "sudo": True}, "get.sudo: no such argument"),
        ("go", {"where": "x", "note": "a\r\nX-Admin: 1"}, "must be printable ASCII"),
    ],
)
def test_arguments_stay_what_they_are(odd: Session, service: OddService, operation: str, arguments: Any, rule: str):
    with pytest.raises(InputError, match=rule):
        odd.plan(asked(operation, "odd", **arguments))
    assert service.requests == []


# --- Services that are no REST ---------------------------------------------------------------------------------------


def test_a_refusal_with_a_good_status_is_one(service: OddService, tmp_path: Path):
    with opened_on(service, tmp_path) as session:
        nowhere = asked("on", "odd", body={"id": "nowhere"})
        assert "cannot be taken back" in session.plan(nowhere).changes[0]  # what the catalogue says means absence
        with pytest.raises(InputError, match="no such lamp"):
            done(session, "on", "odd", body={"id": "nowhere"})
        assert session.journal.standings()[-1].state is S.FAILED


def test_what_is_looked_at_by_a_call_is_taken_back_and_told_apart(odd: Session, service: OddService):
    service.lamps = {"a": False, "b": True}
    first, second = done(odd, "on", "odd", body={"id": "a"}), done(odd, "off", "odd", body={"id": "b"})
    assert odd.dependents_of(first) == []  # another lamp, though at the same path
    service.lamps["b"] = True
    assert len(odd.conflicts_of(second)) == 1
    odd.undo(first)
    assert service.lamps["a"] is False
    odd.redo(first)
    assert service.lamps["a"] is True


def test_without_conditions_a_change_before_an_undo_is_sent_is_found_by_looking(odd: Session, service: OddService):
    action = put(odd, "x", n=1)
    before_each(odd, "undo", lambda: service.items.update(x={"n": "theirs"}))
    with pytest.raises(NotUndone, match="somebody else has changed it meanwhile"):
        odd.undo(action)
    assert service.items == {"x": {"n": "theirs"}}


def test_what_changed_nothing_is_taken_back_by_nothing(odd: Session, service: OddService):
    service.lamps = {"a": True}
    action = done(odd, "on", "odd", body={"id": "a"})
    odd.undo(action)
    assert service.lamps == {"a": True}
    assert manager_of(odd).compensations.all() == {}


# --- Permission ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_taken_back_needs_a_grant_that_says_so_and_is_held(service: OddService, tmp_path: Path):
    plain = Grant(resources=("services/odd/**",), verbs=("*",))
    mail = asked("send", "odd", body={"to": "all"})
    with opened_on(service, tmp_path, grants=(plain,), queue_s=60.0) as session:
        with pytest.raises(NotPermitted) as denied:
            session.propose(mail)
        assert "for what can be taken back better than none" in denied.value.hint
        session.permissions.grant(
            Grant(resources=("services/odd/POST/mails",), verbs=("create",), minimum_guarantee=Guarantee.NONE)
        )
        proposal = session.propose(mail)
        assert proposal.plan.guarantee is Guarantee.NONE
        assert proposal.plan.changes == ("send: POST /mails; cannot be taken back",)
        assert session.run(proposal.action, proposal.plan.digest).state is S.APPROVED
        assert service.requests == []
        assert session.discard(proposal.action).state is S.FAILED
        assert service.requests == []


def test_a_connection_may_queue_more_than_what_cannot_be_taken_back(service: OddService, tmp_path: Path):
    service.items["there"] = {}
    with opened_on(service, tmp_path, queue_up_to="equivalent", queue_s=0.3) as session:
        delays = {
            name: session.plan(asked("put", "odd", id=name, body={"cost": 0})).delay_s for name in ("new", "there")
        }
    assert delays == {"new": 0.0, "there": 0.3}  # exact, and equivalent


def test_nothing_goes_out_that_is_not_permitted_not_even_a_read_back(service: OddService, tmp_path: Path):
    grants = (Grant(resources=("services/odd/PUT/items/mine-*",), verbs=("modify",)),)
    with opened_on(service, tmp_path, grants=grants) as session:
        for given in (asked("put", "odd", id="theirs", body={"cost": 0}), asked("delete", "odd", id="mine-1")):
            with pytest.raises(NotPermitted):
                session.propose(given)
        assert service.requests == []
        put(session, "mine-1", n=1)
    assert list(service.items) == ["mine-1"]


def test_what_got_past_the_decision_is_seen_afterwards_and_taken_back(
    service: OddService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    grants = (Grant(resources=("services/odd/PUT/items/mine-*",), verbs=("modify",)),)
    with opened_on(service, tmp_path, grants=grants) as session:
        monkeypatch.setattr(permissions, "decide", lambda *_: Decision(True))
        with pytest.raises(NotPermitted, match=r"did modify 'services/odd/PUT/items/theirs'"):
            put(session, "theirs", n=1)
        assert session.journal.standings()[-1].state is S.FAILED
        assert [record.kind for record in session.journal.records_of_kinds("alarm")] == ["alarm"]
    assert service.items == {}
    assert [method for method, _, _ in service.requests if method != "GET"] == ["PUT", "DELETE"]


def test_grades_are_told_and_shown_before_anything_is_done(odd: Session, service: OddService):
    service.items["there"] = {}
    told = odd.told()
    assert "put(id, body): PUT /items/{id} [undo: equivalent]" in told
    assert "get(id): GET /items/{id} [reads only]" in told
    assert "send(body): Send a mail [undo: none]" in told
    assert "on(body{id}): POST /rpc/on" in told
    plans = {name: odd.plan(asked("put", "odd", id=name, body={"cost": 0})) for name in ("new", "there")}
    assert {name: plan.guarantee for name, plan in plans.items()} == {
        "new": Guarantee.EXACT,
        "there": Guarantee.EQUIVALENT,
    }
    assert plans["new"].changes == ("put: PUT /items/new; undo: delete, exact (pinned)",)


def test_spending_is_counted_and_limited(service: OddService, tmp_path: Path):
    grants = (Grant(resources=("services/odd/**",), verbs=("*",), max_spend=10.0),)
    with opened_on(service, tmp_path, grants=grants) as session:
        done(session, "put", "odd", id="x", body={"cost": 6})
        with pytest.raises(NotPermitted) as denied:
            session.propose(asked("put", "odd", id="y", body={"cost": 6}))
        assert "is for 10.0 spend, and this would make 12" in denied.value.hint
        with pytest.raises(InputError, match="must be a number"):
            session.propose(asked("put", "odd", id="y", body={"cost": -6}))


def test_free_requests_are_for_services_without_a_catalogue(service: OddService, tmp_path: Path):
    free = {"do": "request", "service": "odd", "method": "POST", "path": "/unknown", "body": {}}
    with opened_on(service, tmp_path) as session, pytest.raises(InputError, match="has a catalogue; name one of its"):
        session.plan(free)
    with opened_on(service, tmp_path, catalogue="") as session:
        assert session.plan(free).guarantee is Guarantee.NONE
        assert [each.resource for each in session.plan(free).request.accesses] == ["services/odd/POST/unknown"]
        for path in ("items/x", "//items/x", "/items/../x", "/items/x#y", "/items/x y", "/items%2fx"):
            with pytest.raises(InputError):
                session.plan({**free, "path": path})
        with pytest.raises(InputError, match="something other than requested"):
            session.plan({**free, "method": "GET", "path": "/items/x?_method=DELETE"})
    assert service.requests == []


def test_services_that_are_not_connected_or_cannot_be_reached_say_so(service: OddService, tmp_path: Path):
    with opened_on(service, tmp_path, patience_s=0.0) as session:
        with pytest.raises(InputError, match="service 'od': is not connected; did you mean odd"):
            session.plan(asked("get", "od", id="x"))
        service.close()
        with pytest.raises(HostError, match=r"nothing was sent.*try again when the service is well"):
            session.plan(asked("get", "odd", id="x"))


def test_without_tls_nothing_goes_to_the_internet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("93.184.216.34", 80))])
    wire = Wire(ServiceConnection(base_url="http://intranet.example", allows_private=True), lambda name: secret(80))
    with pytest.raises(InputError, match=r"is not on a private network, so .* must be https"):
        wire.send(Call("GET", "/"))


@pytest.mark.parametrize("day", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "soon"])
def test_a_time_to_come_again_that_is_none_is_a_second(day: str):
    assert pause_s({"retry-after": day}) == 1.0


def test_a_service_has_one_name_however_it_is_spelled(tmp_path: Path):
    for scheme, spellings in (("https", ("A.example:443", "a.example:0443")), ("http", ("a.example:80", "A.EXAMPLE"))):
        urls = {
            ServiceConnection(base_url=f"{scheme}://{each}/v1/", allows_private=True).base_url for each in spellings
        }
        assert urls == {f"{scheme}://a.example/v1"}


def test_a_key_by_which_something_is_done_once_is_never_given_from_outside(service: OddService, tmp_path: Path):
    catalogue = copy.deepcopy(CATALOGUE)
    catalogue["operations"]["send"]["idempotency"] = "Idempotency-Key"
    catalogue["operations"]["put"] |= {"path": "/items/{id}/{txn}", "idempotency": "txn"}
    with opened_on(service, tmp_path, catalogue=catalogue) as session:
        with pytest.raises(InputError, match=r"Idempotency-Key is a key by which .* chosen again for each"):
            session.propose(asked("send", "odd", body={}, **{"Idempotency-Key": "used"}))
        with pytest.raises(InputError, match="txn is a key by which"):
            session.propose(asked("put", "odd", id="x", txn="used", body={"cost": 0}))
        assert service.requests == []
        done(session, "send", "odd", body={})
        done(session, "send", "odd", body={})
    assert len({headers["idempotency-key"] for method, _, headers in service.requests if method == "POST"}) == 2


# --- Read-backs -------------------------------------------------------------------------------------------------------


def test_a_read_back_that_is_refused_with_a_good_status_says_nothing_of_what_is_there(
    odd: Session, service: OddService
):
    service.lamps["a"], service.num_refused_read_backs = False, 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.propose(asked("on", "odd", body={"id": "a"}))
    assert service.lamps == {"a": False}
    action = done(odd, "on", "odd", body={"id": "a"})
    service.num_refused_read_backs = 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.undo(action)
    odd.undo(action)
    assert service.lamps == {"a": False}


# --- Late read-backs -------------------------------------------------------------------------------------------------


def with_late_read_backs(session: Session, service: OddService, call: str) -> None:
    """From now on, the first read-backs within a call of the manager show what there was before."""
    before_each(session, call, lambda: setattr(service, "num_late", 2))


@pytest.mark.parametrize("call", ["conflicts", "plan_undo", "undo"])
@pytest.mark.parametrize("first", [{}, {"x": {"v": 1}}], ids=["new", "changed"])
def test_what_was_there_before_and_is_shown_late_is_not_taken_for_an_undo(
    odd: Session, service: OddService, first: dict[str, Any], call: str
):
    service.items |= first
    action = done(odd, "put", "odd", id="x", body={"cost": 0})
    with_late_read_backs(odd, service, call)
    odd.undo(action)
    assert service.items == first
    assert odd.journal.standing(action).state is S.UNDONE


def test_what_a_change_left_is_seen_when_it_comes_to_show(odd: Session, service: OddService):
    service.items["x"] = {"v": 1}
    with_late_read_backs(odd, service, "execute")
    action = done(odd, "put", "odd", id="x", body={"cost": 0})
    assert odd.conflicts_of(action) == []
    odd.undo(action)
    assert service.items == {"x": {"v": 1}}


# --- Pages -----------------------------------------------------------------------------------------------------------


def test_the_next_page_of_a_listing_is_at_the_same_path(service: OddService):
    first = Call("GET", "/items?all=1")
    asks = Service("odd", odd_service.connection(service.port), None, Wire(odd_service.connection(service.port), token))

    def following(place: str, **others: Any) -> str | None:
        listing = Listing(path=first.target, items="", id="/id", next="$response.header.link", **others)
        call = asks.next_page(listing, first, Answer(200, {"link": f'<{place}>; rel="next"'}))
        return call and call.target

    for place in ("https://other.example/items?all=1&page=2", "/by-number/7?all=1&page=2#x"):
        assert following(place) == "/items?all=1&page=2"
    for place in ("/items/page/2", "/others?all=1"):
        with pytest.raises(InputError, match="whose query does not say which it is"):
            following(place)


# --- Over TLS --------------------------------------------------------------------------------------------------------

WEB = {
    "service": "web",
    "operations": {
        "echo": {"method": "GET", "path": "/echo"},
        "post": {"method": "POST", "path": "/echo", "body": {}},
        "post_away": {"method": "POST", "path": "/away"},
    },
}


@pytest.fixture
def web() -> Iterator[WebService]:
    web = WebService()
    yield web
    web.close()


def opened_over_tls(web: WebService, folder: Path, **others: Any) -> Session:
    settings = ServiceConnection(
        base_url=f"https://{web.place}",
        catalogue=written(folder, WEB),
        secret="web",
        allows_private=True,
        patience_s=0.0,
        queue_s=0.0,
    )
    key = Secret(service="web", value=TOKEN, hosts=(web.place,), allows_private=True)
    return opened(folder, {"web": settings}, key, **{"verify": web.verify, **others})


def test_a_key_that_is_echoed_in_any_form_is_never_seen(web: WebService, tmp_path: Path):
    with opened_over_tls(web, tmp_path) as session:
        read = session.plan(asked("echo", "web")).output["stdout"]
        action = done(session, "post", "web", body={"x": 1})
        body = session.journal.standing(action).body
        for told in (read.encode(), repr(body).encode(), *(path.read_bytes() for path in tmp_path.rglob("*.json"))):
            assert found_in(told, {"key": TOKEN}) == []
        assert "autoclave-hides-key" in read
    assert [each.headers["authorization"] for each in web.asked] == [f"Bearer {TOKEN}"] * 2
    assert {each.headers["host"] for each in web.asked} == {web.place}


def test_a_service_whose_certificate_is_not_trusted_gets_nothing(web: WebService, tmp_path: Path):
    with opened_over_tls(web, tmp_path, verify=None) as session:
        with pytest.raises(HostError, match="nothing was sent"):
            session.plan(asked("echo", "web"))
        proposal = session.propose(asked("post", "web", body={}))
        with pytest.raises(HostError, match="nothing was sent"):
            session.run(proposal.action, proposal.plan.digest)
    assert web.asked == []


def test_no_redirect_takes_a_key_elsewhere(web: WebService, tmp_path: Path):
    with opened_over_tls(web, tmp_path) as session:
        proposal = session.propose(asked("post_away", "web"))
        with pytest.raises(InputError, match="nothing shows whether it was done; it answered 302"):
            session.run(proposal.action, proposal.plan.digest)  # it may have been done: a user has to check
    assert [each.path for each in web.asked] == ["/away"]
