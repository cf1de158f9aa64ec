"""The listener that a browser comes back to: one request, one path, one name, one state, this machine alone."""

from __future__ import annotations

import socket
import threading

import httpx
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.oauth.loopback import Loopback


def test_it_takes_the_first_request_to_its_path_and_is_gone(capfd: pytest.CaptureFixture[str]):
    with Loopback("s") as loopback:
        base = f"http://127.0.0.1:{loopback.port}"
        assert [httpx.get(f"{base}{path}").status_code for path in ("/", "/favicon.ico", "/callback/x?code=1")] == [
            404
        ] * 3
        assert httpx.post(f"{base}/callback?code=1").status_code == 501
        assert httpx.get(f"{base}/callback?code=1", headers={"Host": "evil.example"}).status_code == 404
        assert httpx.get(f"{base}/callback?code=1", headers={"Host": f"localhost:{loopback.port}"}).status_code == 404
        answer = httpx.get(f"{loopback.redirect_uri}?code=first&state=s")
        assert httpx.get(f"{loopback.redirect_uri}?code=second&state=s").status_code == 410
        assert loopback.query(5) == "code=first&state=s"
        with pytest.raises(httpx.ConnectError):
            httpx.get(loopback.redirect_uri)
    assert answer.status_code == 200
    assert "Close this page" in answer.text
    assert "first" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_this_machine_alone():
    with Loopback("s") as loopback, socket.socket() as other:
        assert loopback.redirect_uri == f"http://127.0.0.1:{loopback.port}/callback"
        with pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", loopback.port))


def test_a_connection_that_says_nothing_keeps_nobody_waiting():
    with Loopback("s") as loopback, socket.create_connection(("127.0.0.1", loopback.port)):
        browser = threading.Thread(target=httpx.get, args=(f"{loopback.redirect_uri}?code=1&state=s",))
        browser.start()
        assert loopback.query(3) == "code=1&state=s"
        browser.join()


def test_it_does_not_wait_for_ever_and_each_has_a_port_of_its_own():
    with Loopback("s") as one, Loopback("s") as other:
        assert one.port != other.port
        with pytest.raises(InputError, match="no browser came back"):
            one.query(0.05)
        with pytest.raises(HostError, match=f"port {other.port} of 127.0.0.1: cannot be listened on .*Fix: "):
            Loopback("s", other.port)


@pytest.mark.parametrize("query", ["?code=x", "?error=access_denied&state=other", "?state=s&code=x&state=other"])
def test_who_comes_with_another_state_is_refused_and_the_right_one_waited_for(query: str):
    with Loopback("s") as loopback:
        assert httpx.get(f"{loopback.redirect_uri}{query}").status_code == 400
        assert httpx.get(f"{loopback.redirect_uri}?code=good&state=s").status_code == 200
        assert loopback.query(3) == "code=good&state=s"
    with Loopback("s") as loopback:
        assert httpx.get(f"{loopback.redirect_uri}{query}").status_code == 400
        with pytest.raises(InputError, match="with the state that was sent"):
            loopback.query(0.05)
