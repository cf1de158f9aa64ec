"""Sessions on services, and a reader of Kinto that shares nothing with what is tested."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.loading import SHIPPED
from autoclave.runtime.rest.manager import RestManager
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret

KEY = "k3y-8cQ2xZ0vRtYw71LmPq"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "MKCALENDAR", "PROPFIND")


def connection(port: int, **others: Any) -> ServiceConnection:
    """A connection to a service on this machine."""
    plain: dict[str, Any] = {
        "base_url": f"http://localhost:{port}",
        "catalogue": "kinto",
        "secret": "kinto",
        "user": "us",
        "allows_private": True,
        "patience_s": 0.3,
        "timeout_s": 10.0,
        "most_wait_s": 3.0,
    }
    return ServiceConnection(**{**plain, **others})


def secret(port: int, **others: Any) -> Secret:
    """The key of such a service, as the password of basic authentication."""
    plain: dict[str, Any] = {"service": "kinto", "value": KEY, "hosts": (f"localhost:{port}",), "methods": METHODS}
    return Secret(**{**plain, "place": "basic", "allows_private": True, **others})


def opened(
    folder: Path,
    connections: dict[str, ServiceConnection],
    key: Secret | None = None,
    *,
    grants: tuple[Grant, ...] | None = None,
    budget: float = 1e9,
    **others: Any,
) -> Session:
    """A session on services; everything is permitted if `grants` do not say otherwise."""
    opening = contextlib.ExitStack()
    journal = opening.enter_context(Journal(folder / "journal.sqlite", folder / "checkpoints"))
    permissions = Permissions(journal, "main", budget)
    key = key or secret(next(iter(connections.values())).place[1])
    manager = RestManager(connections, folder / "rest", journal, others.pop("key_of", lambda name: key), **others)
    session = Session(journal, [manager], permissions, opening)
    if not permissions.grants():
        everything = Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE)
        for grant in (everything,) if grants is None else grants:
            permissions.grant(grant)
    return session


def manager_of(session: Session) -> RestManager:
    manager = session.actions.managers["request"]
    assert isinstance(manager, RestManager)
    return manager


def before_each(session: Session, call: str, act: Callable[[], object]) -> None:
    """From now on, do something right before each call of the manager with this name."""
    manager = manager_of(session)
    original = getattr(manager, call)
    setattr(manager, call, lambda *given, **others: (act(), original(*given, **others))[1])


def asked(operation: str, service: str = "kinto", **arguments: Any) -> dict[str, Any]:
    return {"do": "request", "service": service, "operation": operation, "arguments": arguments}


def done(session: Session, operation: str, service: str = "kinto", **arguments: Any) -> str:
    """Propose and run; the name of the action."""
    proposal = session.propose(asked(operation, service, **arguments))
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


def ask(port: int, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of an answer to somebody else than what is tested."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(link):
        link.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, answer.read().decode()


BASIC = f"Basic {base64.b64encode(f'us:{KEY}'.encode()).decode()}"


@dataclass(frozen=True)
class Reader:
    """Another client of Kinto, which also changes things as somebody else would."""

    port: int
    bucket: str
    collection: str = "notes"

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        given = None if body is None else json.dumps(body)
        status, told, content = ask(
            self.port, method, path, given, Authorization=BASIC, Content_Type="application/json"
        )
        return status, told, json.loads(content) if content else None

    @property
    def where(self) -> dict[str, Any]:
        """The arguments of operations for its collection."""
        return {"bucket": self.bucket, "collection": self.collection}

    @property
    def place(self) -> str:
        return f"/v1/buckets/{self.bucket}/collections/{self.collection}"

    def make(self) -> None:
        assert self.ask("PUT", f"/v1/buckets/{self.bucket}")[0] in (200, 201)
        assert self.ask("PUT", self.place)[0] in (200, 201)

    def put(self, record: str, **data: Any) -> None:
        assert self.ask("PUT", f"{self.place}/records/{record}", {"data": data})[0] in (200, 201)

    def delete(self, record: str) -> None:
        assert self.ask("DELETE", f"{self.place}/records/{record}")[0] == 200

    def records(self) -> dict[str, Any]:
        """All records without their times."""
        return {
            each["id"]: {key: value for key, value in each.items() if key not in ("id", "last_modified")}
            for each in self._pages(f"{self.place}/records")
        }

    def history(self) -> list[tuple[str, str]]:
        """What was done to records, the first first, by Kinto's own account."""
        found = self._pages(f"/v1/buckets/{self.bucket}/history?resource_name=record")
        return [(each["action"], each["record_id"]) for each in found][::-1]

    def _pages(self, path: str) -> list[Any]:
        found: list[Any] = []
        while path:
            status, headers, body = self.ask("GET", path)
            assert status == 200, body
            found += body["data"]
            following = urlsplit(headers.get("next-page", ""))
            path = f"{following.path}?{following.query}" if following.path else ""
        return found


# --- Variants of catalogues that ship --------------------------------------------------------------------------------


def plain(name: str) -> Any:
    return yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())


def written(folder: Path, catalogue: Any) -> str:
    """The file of a catalogue."""
    path = folder / "catalogue.yaml"
    path.write_text(yaml.safe_dump(catalogue))
    return str(path)


def without_keys(folder: Path) -> str:
    """Kinto's, with identifiers that the server alone chooses, so that only the listing tells what was made."""
    catalogue = plain("kinto")
    create = catalogue["operations"]["create_record"]
    del create["idempotency"]
    create["subject"] = {"id": "$response.body#/data/id"}
    create["listing"] = "records"
    return written(folder, catalogue)
