"""Responses of the review page: JSON in ASCII whose texts are visible and bounded, whatever they come from."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi.responses import JSONResponse

from autoclave.core.json import finite
from autoclave.core.visible_text import made_visible

LONGEST = 20_000
"""Characters of a text; the rest is counted."""


class Answer(JSONResponse):
    """A response whose texts went through `visible`."""

    def render(self, content: Any) -> bytes:
        return json.dumps(visible(finite(content)), allow_nan=False, separators=(",", ":")).encode("ascii")


def visible(value: Any) -> Any:
    """Return JSON data with every text as `made_visible` shows it, and at most `LONGEST` characters of it."""
    if isinstance(value, str):
        return made_visible(shortened(value, LONGEST))
    if isinstance(value, Mapping):
        return {made_visible(key): visible(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [visible(inner) for inner in cast("Sequence[Any]", value)]
    return value


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a text, and how many are left out."""
    return text if len(text) <= most else f"{text[:most]} ... and {len(text) - most} characters more"


def pretty(value: Any, most: int = LONGEST) -> str:
    """Return JSON data as indented text of at most about `most` characters."""
    return shortened(json.dumps(value, indent=2, ensure_ascii=False, default=str), most)
