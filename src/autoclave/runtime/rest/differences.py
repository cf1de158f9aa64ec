"""What an action changes of a subject, as lines for a person: what was shown before, and what is or would be. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from autoclave.runtime.rest.parts import Part

_MOST_LINES = 400


def differences(part: Part) -> Iterator[str]:
    """Lines as `diff -u` has them; before an action is run, those of the request in place of what it will leave."""
    before = _lines(part.before.body) if part.before and part.before.is_there else []
    after = _lines(part.after.body if part.after else part.call.body)
    place = part.subject.target if part.subject else part.call.target
    lines = list(difflib.unified_diff(before, after, place, f"{place} ({part.call.method})", lineterm=""))
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"... and {len(lines) - _MOST_LINES} lines more"


def _lines(body: Any) -> list[str]:
    if body is None:
        return []
    return (
        body if isinstance(body, str) else json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False)
    ).splitlines()
