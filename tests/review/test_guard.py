"""The page answers nothing to a request without the token, of another site or host, or that is too large."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from autoclave.review.guard import MOST_BYTES

from .conftest import Reviewed

READS = ["timeline", "actions/00000000", "actions/00000000/images/0/before", "audit", "grants", "openapi.json"]
WRITES = ["preview", "undo", "redo", "commit", "discard", "resolve", "savepoints", "revoke", "stop"]


def records(reviewed: Reviewed) -> int:
    return reviewed.get("audit")["records"]


def test_the_lists_above_name_every_endpoint(shared: Reviewed):
    described = shared.get("openapi.json")["paths"]
    reads = {
        path.replace("{action}", "00000000").replace("{index}", "0").replace("{side}", "before") for path in described
    }
    assert reads == {f"/api/{each}" for each in (*READS, *WRITES)} - {"/api/openapi.json"}


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", "Basic eDp5", "TOKEN"])
@pytest.mark.parametrize("path", [*READS, *WRITES])
def test_the_interface_needs_the_token_in_its_header(shared: Reviewed, path: str, authorization: str | None):
    before = records(shared)
    token = shared.url.split("/")[-2]
    headers = {} if authorization is None else {"Authorization": authorization.replace("TOKEN", token)}
    method = "GET" if path in READS else "POST"
    with httpx.Client(base_url=shared.client.base_url) as stranger:
        for place in (f"/api/{path}", f"/{token}/api/{path}", f"/api/{path}?token={token}"):
            answer = stranger.request(method, place, headers=headers, json=None if method == "GET" else {})
            assert answer.status_code == (403 if place.startswith(f"/{token}") else 401)
    assert records(shared) == before


@pytest.mark.parametrize(
    "path", ["/", "/review.js", "/review.css", "/wrong/", "/wrong/review.js", "/favicon.ico", "//"]
)
def test_the_page_and_its_files_need_the_token_in_their_path(shared: Reviewed, path: str):
    with httpx.Client(base_url=shared.client.base_url) as stranger:
        assert stranger.get(path).status_code == 403
    assert shared.client.get(path).status_code == 403  # the header does not count here


def test_no_cookie_is_set_and_every_response_forbids_to_load_or_frame(shared: Reviewed):
    with httpx.Client() as browser:
        for answer in (
            browser.get(shared.url),
            browser.get(f"{shared.url}review.js"),
            browser.get(f"{shared.url}nothing"),
        ):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe-inline" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
        assert not browser.cookies


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_request_of_another_site_is_refused_even_with_the_token(shared: Reviewed, headers: dict[str, str]):
    before = records(shared)
    assert shared.client.post("/api/stop", json={}, headers=headers).status_code == 403
    assert shared.client.get("/api/timeline", headers=headers).status_code == 403
    assert records(shared) == before


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_cannot_write(shared: Reviewed, content_type: str):
    before = records(shared)
    answer = shared.client.post("/api/stop", content=b"{}", headers={"Content-Type": content_type})
    assert answer.status_code == 415
    assert records(shared) == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "127.0.0.1:80@evil"])
def test_another_host_is_refused(shared: Reviewed, host: str):
    assert shared.client.get("/api/timeline", headers={"Host": host}).status_code == 403
    assert shared.client.get(urlsplit(shared.url).path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "[::1]:80", "127.0.0.1"])
def test_this_host_may_be_reached_through_another_port(shared: Reviewed, host: str):
    answer = shared.client.get("/api/timeline", headers={"Host": host, "Origin": f"http://{host}"})
    assert answer.status_code == 200


def test_a_body_that_is_too_large_is_refused_announced_or_not(shared: Reviewed):
    content = b" " * (MOST_BYTES + 1)
    headers = {"Content-Type": "application/json"}
    assert shared.client.post("/api/stop", content=content, headers=headers).status_code == 413
    assert shared.client.post("/api/stop", content=iter([content]), headers=headers).status_code == 413
    assert shared.client.post("/api/stop", content=b"[" * MOST_BYTES, headers=headers).status_code in (400, 422)


def test_it_listens_on_one_address_of_the_loopback_interface_alone(shared: Reviewed):
    port = urlsplit(shared.url).port or 0
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), 5):
        pass


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "review.html/../app.py",
        "app.py",
        "review.py",
        "%2e%2e/app.py",
        "review.html",
    ],
)
def test_no_other_file_is_served(shared: Reviewed, path: str):
    with socket.create_connection(("127.0.0.1", urlsplit(shared.url).port or 0)) as raw:  # httpx would tidy the path
        target = f"{urlsplit(shared.url).path}{path}"
        raw.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split()[1] in (b"403", b"404", b"422")


BAD: list[tuple[str, dict[str, Any]]] = [
    ("undo", {"actions": ["../../../etc"]}),
    ("undo", {"actions": []}),
    ("undo", {"actions": ["00000000"], "choices": {"zz": "force"}}),
    ("undo", {"actions": ["00000000"], "more": 1}),
    ("commit", {"actions": ["0000000\n"]}),
    ("savepoints", {"name": "a\x1b[31m"}),
    ("savepoints", {"name": "x" * 201}),
    ("savepoints", {"name": "\ud800"}),
    ("resolve", {"action": "00000000", "state": "committed", "reason": "x"}),
    ("resolve", {"action": "00000000", "state": "executed"}),
    ("revoke", {"grant": "../x"}),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_what_is_not_valid_is_refused_with_the_rule(shared: Reviewed, path: str, body: dict[str, Any]):
    before = records(shared)
    assert shared.post(path, 422, **body)["error"]
    assert records(shared) == before


@pytest.mark.parametrize("path", ["undo", "redo", "commit", "discard", "preview"])
def test_an_action_that_is_not_there_is_not_found(shared: Reviewed, path: str):
    assert "is not in the journal" in shared.post(path, 404, actions=["00000000"])["error"]
