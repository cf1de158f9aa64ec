"""What an action consists of: what is requested, calls, states before and after, answers. Data, to and from JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from autoclave.config import Config
from autoclave.runtime.rest.expressions import at
from autoclave.runtime.rest.forms import Form

Json = Mapping[str, Any]
_STRONG = re.compile(r'"[\x21\x23-\x7e]*"|[A-Za-z0-9._:+/=-]+')
"""An entity tag that names one version: no weak one, no list of several, no `*`. Some services leave the quotes out."""
ABSENT = "absent"
"""The digest of nothing."""


class Ask(Config):
    """Ask a service: one of its registered operations by name, or, where that is permitted, by method and path."""

    do: Literal["request"]
    service: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    operation: str = ""
    """Of the catalogue of the service."""
    arguments: dict[str, Any] = {}
    """Its parameters by name, and `body`."""
    method: str = Field(default="", pattern=r"^[A-Z]*$")
    path: str = ""
    """As the service sees it, with the query."""
    body: Any = None
    """JSON, a text, or bytes as `{"base64": ...}`."""
    content_type: str = "application/json"

    @model_validator(mode="after")
    def _is_one_kind(self) -> Ask:
        if bool(self.operation) == bool(self.method or self.path) or bool(self.method) != bool(self.path):
            raise ValueError("give either operation (and arguments), or method and path (and body)")
        if self.operation and self.body is not None:
            raise ValueError("the body of an operation is the argument `body`")
        return self


@dataclass(frozen=True, slots=True)
class Call:
    """A request without a key. `target` is path and query; `path`, `query`: parameters by their names.

    `form`: what its answer is read as; None: as its content type says.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    content_type: str = "application/json"
    path: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    form: Form | None = None

    @property
    def told(self) -> str:
        """In words."""
        return f"{self.method} {self.target.partition('?')[0]}"

    @property
    def request(self) -> Json:
        """What expressions call `$request`."""
        return {"path": self.path, "query": self.query, "header": self.headers, "body": self.body}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service said; names of headers in small letters."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None

    @property
    def response(self) -> Json:
        """What expressions call `$response`."""
        return {"status": self.status, "header": self.headers, "body": self.body}


@dataclass(frozen=True, slots=True)
class State:
    """What there was of a subject. `digest` is of what counts in it; `etag` names the version, if there is one."""

    digest: str = ABSENT
    etag: str = ""
    body: Any = None

    @property
    def is_there(self) -> bool:
        return self.digest != ABSENT

    @property
    def seen(self) -> Json:
        """What expressions call `$before`."""
        return {"body": self.body, "header": {"etag": self.etag}}

    def is_same(self, other: State) -> bool:
        """Whether both are the same for whoever uses them."""
        return self.digest == other.digest


@dataclass(frozen=True, slots=True)
class Part:
    """One call of an action.

    Attributes:
        operation: its name in the catalogue; empty for a free request.
        arguments: what it was made from.
        call: what is sent.
        read_back: the name of the read-back that shows what it changes; empty if there is none.
        subject: the call of that read-back; None if there is none, or if only the answer will say.
        before: what that showed; None if it was not read.
        num_inside: how many things are in it that go with it; None if it was not read.
        guards: whether the call is sent on the condition that the subject is still so.
        listed: what its listing had before, if only a listing can tell whether it was done.
        is_keyed: whether it has a key by which the service does it once, however often it is sent.
        wanted: what an undo or redo has to bring about; None for any.
        leaves: in place of it, what has to be seen, by pointers.
        compensation: the name of the compensating request that it is.
        is_pinned: whether a developer answers for that; then it is never quarantined.
        proposed: that compensating request, if a model proposed it.
        answer, after: what came of it.
    """

    operation: str
    arguments: Json
    call: Call
    read_back: str = ""
    subject: Call | None = None
    before: State | None = None
    num_inside: int | None = None
    guards: bool = False
    listed: Sequence[str] | None = None
    is_keyed: bool = False
    wanted: State | None = None
    leaves: Json = field(default_factory=dict[str, Any])
    compensation: str = ""
    is_pinned: bool = False
    proposed: Json | None = None
    answer: Answer | None = None
    after: State | None = None

    @property
    def context(self) -> dict[str, Any]:
        """What expressions can speak of."""
        context: dict[str, Any] = {"request": self.call.request}
        context |= {"response": self.answer.response} if self.answer else {}
        return context | ({"before": self.before.seen} if self.before and self.before.is_there else {})

    @property
    def existed(self) -> bool:
        """Whether its subject was there before, as far as it was read."""
        return self.before is not None and self.before.is_there

    @property
    def has_aim(self) -> bool:
        """Whether it is an undo or redo, of which is known what it has to bring about."""
        return self.wanted is not None or bool(self.leaves)

    @property
    def guard(self) -> dict[str, str]:
        """The headers that let it be done only while its subject is as it was."""
        if not self.guards or self.before is None:
            return {}
        if not self.before.is_there:
            return {"If-None-Match": "*"}
        return {"If-Match": self.before.etag} if _STRONG.fullmatch(self.before.etag) else {}

    def satisfies(self, now: State | None) -> bool:
        """Whether what is seen now is what this had to bring about; of what nobody can see, it is taken to be."""
        if now is None:
            return True
        if self.leaves:
            return now.is_there and all(at(now.body, pointer) == value for pointer, value in self.leaves.items())
        return self.wanted is None or now.is_same(self.wanted)

    def with_end(self, answer: Answer | None, after: State | None) -> Part:
        return replace(self, answer=answer, after=after)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_PART = TypeAdapter(Part)


def part_from(plain: Json) -> Part:
    """A part out of JSON data."""
    return _PART.validate_python(plain)
