"""What a service shows is put back as it was, or it is said before that it cannot be; never as something else."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.rest.forms import decoded, encoded, has_mark
from autoclave.runtime.session import Session
from tests.runtime.rest.acting import KEY, asked, done, secret
from tests.runtime.rest.odd_service import opened_on
from tests.runtime.rest.scripted_service import RawService, answer

JSON = "application/json"


@pytest.fixture
def service() -> Iterator[RawService]:
    with RawService() as service:
        yield service


@pytest.fixture
def odd(service: RawService, tmp_path: Path) -> Iterator[Session]:
    with opened_on(service, tmp_path) as session:
        yield session


# --- Keys ------------------------------------------------------------------------------------------------------------


def test_a_record_with_the_key_in_it_cannot_be_put_back_and_that_is_said_before(service: RawService, tmp_path: Path):
    service.kept["/items/hook"] = kept = json.dumps({"url": "https://ci", "token": KEY}).encode()
    key = secret(service.port, place="header", name="Authorization")
    with opened_on(service, tmp_path, key=key, secret="kinto") as session:
        plan = session.plan(asked("delete", "odd", id="hook"))
        assert plan.guarantee is Guarantee.NONE
        assert plan.changes == ("delete: DELETE /items/hook; cannot be taken back",)
        with pytest.raises(InputError, match="stands for a key"):  # what the model has seen, it may write elsewhere
            session.plan(asked("put", "odd", id="x", body={"cost": 0, "token": "autoclave-hides-key"}))
        deleted = done(session, "delete", "odd", id="hook")
    with (
        opened_on(service, tmp_path, key=key, secret="kinto") as session,
        pytest.raises(AutoclaveError, match="has a key, or something that is not read exactly"),
    ):
        session.undo(deleted)
    assert service.kept == {}
    assert kept not in [body for _, _, body in service.asked]


def test_a_record_with_the_key_in_it_is_the_same_in_every_session(service: RawService, tmp_path: Path):
    service.shows = lambda kept: answer(json.dumps({**json.loads(kept), "by": KEY}).encode())
    key = secret(service.port, place="header", name="Authorization")
    with opened_on(service, tmp_path, key=key, secret="kinto") as session:
        action = done(session, "put", "odd", id="x", body={"cost": 0})
    with opened_on(service, tmp_path, key=key, secret="kinto") as session:
        assert session.conflicts_of(action) == []
        session.undo(action)
    assert service.kept == {}


# --- Numbers, names and bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kept",
    [
        b'{"n":12345678901234567890.1}',
        b'{"n":0.10000000000000000001}',
        b'{"n":1e400}',
        b'{"n":NaN}',
        b'{"n":' + b"9" * 5000 + b"}",
        b'{"n":1,"n":2}',
        b'{"n":"\xe9"}',
        b'{"n":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"n":1',
    ],
    ids=["digits", "decimals", "exponent", "nan", "integer", "names", "encoding", "depth", "half"],
)
def test_what_data_here_cannot_hold_is_not_put_back_as_something_else(service: RawService, odd: Session, kept: bytes):
    service.kept["/items/x"] = kept
    plan = odd.plan(asked("put", "odd", id="x", body={"cost": 0}))
    assert plan.guarantee is Guarantee.NONE
    other = kept.replace(b"1", b"3").replace(b"9", b"8").replace(b"NaN", b"Infinity").replace(b"\xe9", b"\xe8")
    service.kept["/items/x"] = other
    assert (odd.plan(asked("put", "odd", id="x", body={"cost": 0})).digest == plan.digest) == (kept == other)


@pytest.mark.parametrize(
    ("kept", "content_type"),
    [
        (b'{"a":1.0,"b":1,"c":123456789012345678901234567890,"d":-0.0,"e":5e-324}', JSON),
        (b'{"a":"\\ud800"}', JSON),
        (b'{"a":"\xc3\xa9"}', JSON),
        (b'{"a":1}', "text/plain"),
        (b'{"base64":"/w=="}', JSON),
    ],
    ids=["numbers", "half a surrogate", "letters", "as text", "like bytes"],
)
def test_json_is_put_back_as_it_was(service: RawService, odd: Session, kept: bytes, content_type: str):
    service.kept["/items/x"] = kept
    service.shows = lambda kept: answer(kept, content_type)
    odd.undo(done(odd, "put", "odd", id="x", body={"cost": 0}))
    assert service.kept == {"/items/x": kept}


@pytest.mark.parametrize("content_type", [JSON, "application/octet-stream"])
@pytest.mark.parametrize("kept", [b'"abc"', b'{ "a" : 1 }', b'{"base64":"/w=="}', b"", b"\xff\x00", b"\xef\xbb\xbfx"])
def test_files_are_put_back_byte_by_byte_whatever_they_are_called(
    service: RawService, odd: Session, kept: bytes, content_type: str
):
    service.kept["/files/f"] = kept
    service.shows = lambda kept: answer(kept, content_type)
    odd.undo(done(odd, "put_file", "odd", id="f", body="new"))
    assert service.kept == {"/files/f": kept}


numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values.filter(lambda value: value is not None))
def test_what_is_written_is_read_as_it_was(value: Any):
    again = decoded(encoded(value, JSON), JSON)
    assert json.dumps(again) == json.dumps(value)
    assert not has_mark(again)


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_exactly_or_marked(number: Any):
    text = f"{number:E}"
    read = decoded(f'{{"n": {text}}}'.encode(), JSON)["n"]
    assert read == f"autoclave-hides-{text}" if isinstance(read, str) else Decimal(repr(read)) == number


def test_no_number_is_sent_that_is_none_in_json():
    with pytest.raises(InputError, match="none in JSON"):
        encoded({"n": float("inf")}, JSON)


# --- Whole answers ---------------------------------------------------------------------------------------------------


def test_a_packed_answer_may_have_several_members(service: RawService, odd: Session):
    service.kept["/items/x"] = b""
    packed = gzip.compress(b"first\n") + gzip.compress(b"second\n")
    service.shows = lambda kept: answer(packed, "text/plain", "Content-Encoding: gzip")
    assert odd.plan(asked("get", "odd", id="x")).output["stdout"] == "first\nsecond\n"


@pytest.mark.parametrize(
    "cut",
    [
        lambda kept: answer(gzip.compress(kept)[:-9], "text/plain", "Content-Encoding: gzip"),
        lambda kept: answer(kept, "text/plain")[:-3],
        lambda kept: answer(kept, JSON)[:-3],
        lambda kept: b"HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(kept), kept),
        lambda kept: b"HTTP/1.0 200 So\r\nContent-Type: text/plain\r\n\r\n" + kept,
        lambda kept: answer(kept, "text/plain", status=206),
    ],
    ids=["packed", "text", "json", "chunks", "no length", "a part"],
)
def test_an_answer_that_may_not_be_whole_is_none(service: RawService, tmp_path: Path, cut: Callable[[bytes], bytes]):
    service.kept["/files/f"] = b"0123456789" * 20
    service.shows = cut
    with opened_on(service, tmp_path, patience_s=0.0) as session, pytest.raises(HostError, match="/files/f"):
        session.plan(asked("put_file", "odd", id="f", body="new"))
    assert {method for method, _, _ in service.asked} == {"GET"}


# --- Time ------------------------------------------------------------------------------------------------------------


def _dripping(first: bytes, drop: bytes, is_over: threading.Event) -> Callable[[socket.socket], None]:
    def drip(link: socket.socket) -> None:
        link.sendall(first)
        for _ in range(100):  # and not for ever, if no reader ends it
            if is_over.wait(0.05):
                return
            link.sendall(drop)

    return drip


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"a"),
    ],
    ids=["header", "interim", "body"],
)
def test_one_time_limit_is_for_all_of_an_exchange(service: RawService, tmp_path: Path, first: bytes, drop: bytes):
    is_over = threading.Event()
    service.script = lambda *_: _dripping(first, drop, is_over)
    begun = time.monotonic()
    try:
        with (
            opened_on(service, tmp_path, timeout_s=0.5, patience_s=0.0) as session,
            pytest.raises(HostError, match=r"within 0\.5 s"),
        ):
            session.plan(asked("get", "odd", id="x"))
    finally:
        is_over.set()
    assert time.monotonic() - begun < 60  # and not for ever


def test_a_certificate_that_comes_too_slowly_is_not_waited_for(service: RawService, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, and says nothing of TLS
        port = silent.getsockname()[1]
        settings = {"base_url": f"https://localhost:{port}", "timeout_s": 0.5, "patience_s": 0.0}
        with (
            opened_on(service, tmp_path, **settings) as session,
            pytest.raises(HostError, match=r"no connection .*nothing was sent"),
        ):
            session.plan(asked("get", "odd", id="x"))
