"""The request of an action to a service, its answer, and its resource before and after. Reads only.

As the journal has them: a key is put in when a request is sent, and taken out of its answer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoclave.core.line_diff import Work
from autoclave.review.answers import pretty
from autoclave.review.line_diff import compared, text_of
from autoclave.runtime.interface import Json
from autoclave.runtime.rest.notes import Notes
from autoclave.runtime.rest.parts import Part, part_from


def request_changes(action: str, receipt: Json, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the request and the difference it made. Raises InputError where they are not kept any more."""
    part = part_from(Notes(folder).recalled(action, receipt["part"]))
    yield {
        "kind": "request",
        "verb": part.operation or "request",
        "path": f"{receipt['service']}: {part.call.method} {part.call.target}",
        "headers": [[name, value] for name, value in part.call.headers.items()],
        "body": "" if part.call.body is None else pretty(part.call.body),
        "answer": _answer(part),
    }
    if part.before is not None or part.after is not None:
        before, after = (_text(each.body) if each and each.is_there else "" for each in (part.before, part.after))
        change = {"verb": "resource", "path": part.subject.target if part.subject else part.call.target}
        if None in [text_of(each.encode("utf-8", "backslashreplace")) for each in (before, after)]:
            yield {
                **change,
                "kind": "words",
                "before": f"{len(before)} characters",
                "after": f"{len(after)} characters",
            }
        else:
            yield {**change, "kind": "text", **compared(before, after, Work())}


def _answer(part: Part) -> dict[str, Any] | None:
    if part.answer is None:
        return None
    body = "" if part.answer.body is None else pretty(part.answer.body)
    return {"status": part.answer.status, "headers": [[*each] for each in part.answer.headers.items()], "body": body}


def _text(body: Any) -> str:
    text = body if isinstance(body, str) else json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False)
    return text if text.endswith("\n") else f"{text}\n"
