"""The commands that have a service authorised, renew its token and give it up; and what stays secret of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from autoclave.cli.act import act
from autoclave.runtime.vault import KeyFile, Passphrase, Vault
from autoclave.runtime.vault.traces import found_in
from tests.runtime.oauth.conftest import status_at
from tests.runtime.oauth.servers import Browser, Server
from tests.runtime.web_service import watched

_VERBOSE = """
import logging, sys
logging.basicConfig(level=0, filename="all.log")
logging.debug("begun")
from autoclave.cli import main
sys.argv[0] = "autoclave"
main()
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """A command of the vault in a process of its own that logs all that any library has to say."""

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _VERBOSE, "act", "vault", *words, "--vault", "vault"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended(process: subprocess.Popen[str], given: str = "") -> tuple[int | None, str, str]:
    out, err = process.communicate(given, timeout=60)
    return process.returncode, out, err


def shown_address(process: subprocess.Popen[str]) -> str:
    """The address on the screen of a command that waits."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("    "):
            return line.strip()
    raise AssertionError(process.communicate(timeout=20))


def test_a_service_is_authorised_listed_renewed_and_given_up_and_no_token_is_seen_anywhere(
    server: Server, browser: Browser, command: Callable[..., subprocess.Popen[str]], tmp_path: Path
):
    kept = Vault(tmp_path / "vault", KeyFile(tmp_path / "vault.key"))
    trust = ("--trust", str(server.certificates))
    printed: list[str] = []
    values: list[str] = []

    def done(process: subprocess.Popen[str]) -> str:
        code, out, err = ended(process)
        printed.extend((out, err))
        assert code == 0, err
        if "api" in kept.names():
            secret = kept.secret("api", "a test")
            assert secret.authorization
            values.extend((secret.value, secret.authorization.refresh_token))
        return out + err

    with watched() as seen:
        first = command(
            "authorize", "api", "--issuer", server.issuer, "--client-id", "native", "--scope", "openid",
            "--scope", "read", "--host", server.place, "--allow-private", "--no-browser", *trust,
        )  # fmt: skip
        assert httpx.get(browser.sent_back(shown_address(first))).status_code == 200
        assert "api: granted (openid read)" in done(first)
        more = command("authorize", "api", "--scope", "write", "--no-browser", *trust)
        assert httpx.get(browser.sent_back(shown_address(more))).status_code == 200
        assert "api: granted (openid read write)" in done(more)
        assert "api: granted (openid read write)" in done(command("authorize", "api", *trust))
        listed = done(command("list"))
        assert re.fullmatch(
            rf"api  {server.place}  GET,\S+  header Authorization  oauth openid,read,write  expires in 60 min\n",
            listed,
        )
        done(command("rotate", "api", *trust))
        current = values[-2]
        assert status_at(server, "/api/things", current) == 200
        done(command("remove", "api", *trust))
        assert status_at(server, "/api/things", current) == 401
        assert done(command("list")) == ""
    assert len(set(values)) == 6  # authorised, for more, and renewed: an access and a refresh token each
    haystack = [*seen, *(text.encode() for text in printed)]
    haystack += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"authorize\0api" in content for content in seen)
    assert "begun" in (tmp_path / "all.log").read_text()
    named = {f"{number}": value for number, value in enumerate(set(values))}
    assert [found for content in haystack for found in found_in(content, named)] == []


def test_a_device_is_authorised_and_a_client_secret_is_read_not_named(
    server: Server, browser: Browser, command: Callable[..., subprocess.Popen[str]], tmp_path: Path
):
    process = command(
        "authorize", "api", "--issuer", server.issuer, "--client-id", "with secret", "--with-client-secret", "--device",
        "--scope", "openid", "--host", server.place, "--allow-private", "--trust", str(server.certificates),
    )  # fmt: skip
    assert process.stdin
    process.stdin.write("a:b+c%20d/e&f\n")
    process.stdin.close()
    process.stdin = None
    code = shown_address(process)
    browser.types_in(f"{server.issuer}/device", code)
    returned, out, err = ended(process)
    assert returned == 0, err
    assert "api: granted (openid)" in out
    secret = Vault(tmp_path / "vault", KeyFile(tmp_path / "vault.key")).secret("api", "a test")
    assert status_at(server, "/api/things", secret.value) == 200
    assert secret.authorization
    assert secret.authorization.client_secret == "a:b+c%20d/e&f"
    assert b"a:b+c" not in (tmp_path / "all.log").read_bytes() + (out + err).encode()


# --- What is said when something is missing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["api"], "give --issuer, or --authorization-url and --token-url"),
        (["api", "--token-url", "http://a.example"], "token_url: 'http://a.example' must begin with https://"),
        (["api", "--token-url", "https://a.example"], "service api: give --client-id"),
        (["api", "--token-url", "https://a.example", "--client-id", "c"], "service api: give --host"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, words: list[str], told: str):
    result = CliRunner().invoke(act, ["vault", "authorize", *words, "--vault", str(tmp_path / "vault")])
    assert re.search(told, str(result.exception)), result.exception


def test_what_cannot_be_made_void_is_kept_unless_that_is_said(server: Server, somebody: Any, wish: Any, tmp_path: Path):
    path, passphrase = tmp_path / "vault", tmp_path / "passphrase"
    passphrase.write_text("open sesame\n")

    def remove(*words: str) -> Any:
        return CliRunner().invoke(
            act,
            ["vault", "remove", "api", "--vault", f"{tmp_path}/vault", "--key", "passphrase", *words],
            env={"AUTOCLAVE_VAULT_PASSPHRASE_FILE": str(passphrase)},
        )

    somebody.authorises(wish)
    Vault(path, KeyFile.beside(path)).rekey(Passphrase("open sesame"))
    server.control(is_down=True)
    refused = remove("--trust", str(server.certificates))
    assert re.search(
        r"service api: .*It is kept; to forget it all the same: vault remove --unrevoked", str(refused.exception)
    )
    assert Vault(path, Passphrase("open sesame")).names() == ["api"]
    assert remove("--unrevoked").exit_code == 0
    assert Vault(path, Passphrase("open sesame")).names() == []
