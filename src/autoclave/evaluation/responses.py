"""Responses of a model, their source, and the cache that keeps them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from autoclave.core import DataError, InputError
from autoclave.core.closing import Closing
from autoclave.core.compressed import open_plain
from autoclave.core.files import existing_file, read_jsonl
from autoclave.core.futures import chained, completed
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.core.sqlite_files import KeptTexts
from autoclave.rollout import SamplingParameters


@dataclass(frozen=True, slots=True)
class Response:
    """One response.

    Attributes:
        text: without the stop that ended it, where the source leaves that out.
        finish: `length` if the limit cut it, `filtered` if the content filter of its server did; empty if unknown.
        tokens: its number of tokens, None if unknown.
        prompt_tokens: number of tokens of its prompt, None if unknown.
        form: `text` as a model writes it, `submission`: a program or an answer as it is judged, `completion`: code that
            continues the prompt.
    """

    text: str
    finish: Literal["stop", "length", "filtered", ""] = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    form: Literal["text", "submission", "completion"] = "text"
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name and arguments, as text, of each tool that it calls."""


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """Request for one response. `is_chat`: messages of a chat; else the model continues the text of the one message."""

    question_id: str
    messages: tuple[Mapping[str, Any], ...]
    is_chat: bool
    parameters: SamplingParameters
    sample: int
    tools: tuple[Mapping[str, Any], ...] = ()
    """Schemas of the tools that may be called; responses to such requests are not cached."""

    def key(self, identity: Any) -> bytes:
        """Key of the response, with the `identity` of its source; not the id of the question."""
        parts = [identity, self.messages, self.is_chat, to_plain(self.parameters), self.sample]
        return hashlib.sha256(canonical_json(parts)).digest()


class ResponseSource(Protocol):
    """A model, or a file of its responses. Safe to use from several threads."""

    @property
    def identity(self) -> Any:
        """Settings that responses depend on beside the question, as JSON data; None: they need no cache."""
        ...

    def respond(self, requests: Sequence[ResponseRequest]) -> list[Future[Response]]:
        """Return a future per request; it raises an error that retries could not fix."""
        ...

    def account(self) -> Mapping[str, Any]:
        """Tokens and requests spent so far, as JSON data."""
        ...

    def close(self) -> None:
        """End what is under way."""


class CachedResponses(Closing):
    """A source with a cache in front, by everything that responses depend on: one for all models and benchmarks.

    `fresh`: earlier entries of the cache are not used.
    """

    def __init__(self, source: ResponseSource, cache: KeptTexts, *, fresh: bool = False) -> None:
        self._source, self._cache, self._fresh = source, cache, fresh
        self.num_found = 0

    @property
    def identity(self) -> Any:
        return self._source.identity

    def respond(self, requests: Sequence[ResponseRequest]) -> list[Future[Response]]:
        """See `ResponseSource`. Equal requests are sent once."""
        keys = [request.key(self.identity) for request in requests]
        found = {} if self._fresh else {key: text for key in keys if (text := self._cache.get(key)) is not None}
        known = {key: from_plain(Response, json.loads(text), "cached response") for key, text in found.items()}
        self.num_found += sum(key in known for key in keys)
        missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in known}
        given = dict(zip(missing, self._source.respond(list(missing.values())), strict=True))
        return [
            completed(known[key]) if key in known else chained(given[key], partial(self._kept, key)) for key in keys
        ]

    def _kept(self, key: bytes, response: Response) -> Response:
        self._cache.put(key, json.dumps(to_plain(response)))
        return response

    def account(self) -> Mapping[str, Any]:
        return {**self._source.account(), "from_cache": self.num_found}

    def close(self) -> None:
        self._source.close()


_IDS = ("problem_id", "task_id", "question_id", "id")
_Form = Literal["text", "submission", "completion"]
_TEXTS: Sequence[tuple[str, _Form]] = (
    ("response", "text"),
    ("output", "text"),
    ("source", "submission"),
    ("solution", "submission"),
    ("completion", "completion"),
)
"""Fields with a response, and the form of it."""
_LISTS: Sequence[tuple[str, _Form]] = (("output_list", "text"), ("code_list", "submission"))


class RecordedResponses:
    """Responses by the id of their problem, in the order of the file; see `read_responses`."""

    identity = None

    def __init__(self, responses: Mapping[str, Sequence[Response]]) -> None:
        self._responses = responses

    def num_samples(self, problem_id: str) -> int:
        return len(self._responses.get(problem_id, ()))

    def respond(self, requests: Sequence[ResponseRequest]) -> list[Future[Response]]:
        return [completed(self._responses[request.question_id][request.sample]) for request in requests]

    def account(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


def read_responses(path: Path, problem_ids: Sequence[str]) -> RecordedResponses:
    """Return the responses of a file to the problems with these ids; responses to other problems are skipped.

    A line, or an element of an array, has `problem_id`, `task_id` or `question_id`, and `response` (raw text),
    `source` or `solution` (a program), `completion` (code that continues the prompt), or lists of several:
    `output_list` (raw text), `code_list` (programs). Ids may be ours or those of the set: `HumanEval/0`, `Mbpp/11`,
    `1873_A`.

    Raises InputError: the file does not exist, or no response is to one of these problems. DataError: a line has no id
    or no response.
    """
    exact, loose = set(problem_ids), _loose_ids(problem_ids)
    found: dict[str, list[Response]] = {}
    num_rows = 0
    for where, row in read_records(path, "responses"):
        num_rows += 1
        given = next((str(row[name]) for name in _IDS if row.get(name) is not None), None)
        if given is None:
            raise DataError(f"{where}: has none of {', '.join(_IDS)}. Fix: name the problem of each response")
        if id := given if given in exact else loose.get(given.casefold()):
            found.setdefault(id, []).extend(_responses(row, where))
    if not found:
        raise InputError(
            f"{path}: none of its {num_rows} responses is for a problem of this set, such as {problem_ids[:3]}"
        )
    return RecordedResponses(found)


def read_records(path: Path, what: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of JSON lines, of an array, or of EvalPlus's `eval`, each with its place; also of one object.

    Raises InputError: the file does not exist. DataError: a record is not an object.
    """
    with open_plain(existing_file(path, what)) as file:
        text = file.read()
    try:
        whole: Any = json.loads(text)
    except ValueError:
        yield from read_jsonl(path, what)
        return
    if isinstance(whole, dict) and isinstance(whole.get("eval"), dict):
        tasks = cast("dict[str, list[dict[str, Any]]]", whole["eval"])
        whole = [{"task_id": id, **each} for id, samples in tasks.items() for each in samples]
    for number, row in enumerate(cast("list[Any]", whole if isinstance(whole, list) else [whole])):
        if not isinstance(row, dict):
            raise DataError(f"{path}[{number}]: must be an object")
        yield f"{path}[{number}]", cast("dict[str, Any]", row)


def _responses(row: Mapping[str, Any], where: str) -> list[Response]:
    for name, form in _LISTS:
        texts = row.get(name)
        if isinstance(texts, list):
            return [Response(_text(text, where, name), form=form) for text in cast("list[Any]", texts)]
    for name, form in _TEXTS:
        if row.get(name) is not None:
            return [Response(_text(row[name], where, name), form=form)]
    names = ", ".join(name for name, _ in (*_TEXTS, *_LISTS))
    raise DataError(f"{where}: has no response; one of {names} is needed")


def _text(value: Any, where: str, name: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} = {str(value)[:60]}: must be text")
    return value


def _loose_ids(problem_ids: Iterable[str]) -> dict[str, str | None]:
    """Return the ids by every name that they are found by: in lower case, also without the parts before a slash.

    None for a name of several.
    """
    found: dict[str, str | None] = {}
    for id in dict.fromkeys(problem_ids):
        parts = id.casefold().split("/")
        for name in {"/".join(parts[begin:]) for begin in range(len(parts))}:
            found[name] = None if name in found else id
    return found
