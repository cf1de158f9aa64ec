"""Responses of a model, their source, and the cache that keeps them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from autoclave.core.closing import Closing
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.core.kept_texts import KeptTexts
from autoclave.problems.prompts import Messages
from autoclave.rollout import SamplingParameters


@dataclass(frozen=True, slots=True)
class Response:
    """One response.

    Attributes:
        text: without the stop that ended it, where the source leaves that out.
        finish: `length` if the limit cut it, `filtered` if its server kept it back; empty where the source does not
            say.
        tokens: how many it has, None where the source does not say.
        prompt_tokens: how many its prompt has, likewise.
        form: `text` as a model says it, `submission`: a program or an answer as it is judged, `completion`: code that
            goes on from the prompt.
    """

    text: str
    finish: Literal["stop", "length", "filtered", ""] = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    form: Literal["text", "submission", "completion"] = "text"


@dataclass(frozen=True, slots=True)
class Asked:
    """One response wanted. `is_chat`: messages of a chat; else the text of the one message is what is gone on from."""

    question_id: str
    messages: Messages
    is_chat: bool
    parameters: SamplingParameters
    sample: int

    def key(self, identity: Any) -> bytes:
        """Key of the response, with the `identity` of its source; not the id of the question."""
        asked = [identity, self.messages, self.is_chat, to_plain(self.parameters), self.sample]
        return hashlib.sha256(canonical_json(asked)).digest()


class ResponseSource(Protocol):
    """A model, or a file of what one said. Safe to use from several threads."""

    @property
    def identity(self) -> Any:
        """Settings that responses depend on beside the question, as JSON data; None: they need no cache."""
        ...

    def respond(self, asked: Sequence[Asked]) -> list[Future[Response]]:
        """The responses, each once it is there; a future raises what went wrong for good."""
        ...

    def account(self) -> Mapping[str, Any]:
        """Tokens and requests spent so far, as JSON data."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


class ResponseCache(Closing):
    """Responses that were given before, by all they depend on: one SQLite file for all models and benchmarks.

    A response is durable against the death of the process the moment `put` returns. Safe to use from several threads.

    Raises:
        InputError: the file is damaged, or nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self._kept = KeptTexts(path, "responses")

    def get(self, key: bytes) -> Response | None:
        """The response that was kept under this key."""
        text = self._kept.get(key)
        return None if text is None else from_plain(Response, json.loads(text), "cached response")

    def put(self, key: bytes, response: Response) -> None:
        """Keep a response."""
        self._kept.put([(key, json.dumps(to_plain(response)))])

    def close(self) -> None:
        self._kept.close()


class CachedResponses(Closing):
    """A source whose responses are kept, and not asked for again. `fresh`: what was kept before is not used."""

    def __init__(self, source: ResponseSource, cache: ResponseCache, *, fresh: bool = False) -> None:
        self._source, self._cache, self._fresh = source, cache, fresh
        self.num_found = 0

    @property
    def identity(self) -> Any:
        return self._source.identity

    def respond(self, asked: Sequence[Asked]) -> list[Future[Response]]:
        """See `ResponseSource`. What several ask alike is asked once."""
        keys = [each.key(self.identity) for each in asked]
        known = {} if self._fresh else {key: found for key in keys if (found := self._cache.get(key)) is not None}
        self.num_found += sum(key in known for key in keys)
        wanted = {key: each for key, each in zip(keys, asked, strict=True) if key not in known}
        given = dict(zip(wanted, self._source.respond(list(wanted.values())), strict=True))
        return [_settled(known[key]) if key in known else self._kept(key, given[key]) for key in keys]

    def _kept(self, key: bytes, given: Future[Response]) -> Future[Response]:
        """The response of `given`, once it is in the cache."""
        response: Future[Response] = Future()

        def keep(done: Future[Response]) -> None:
            try:
                found = done.result()
                self._cache.put(key, found)
            except BaseException as error:  # noqa: BLE001  it is raised where the response is waited for
                response.set_exception(error)
            else:
                response.set_result(found)

        given.add_done_callback(keep)
        return response

    def account(self) -> Mapping[str, Any]:
        """See `ResponseSource`."""
        return {**self._source.account(), "from_cache": self.num_found}

    def close(self) -> None:
        self._source.close()


def _settled(response: Response) -> Future[Response]:
    future: Future[Response] = Future()
    future.set_result(response)
    return future
