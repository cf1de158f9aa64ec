"""Answers in words, and which of their headers anybody needs. Pure."""

from __future__ import annotations

import re

from autoclave.core.json import shown
from autoclave.runtime.rest.catalogue import Catalogue
from autoclave.runtime.rest.parts import Answer
from autoclave.runtime.rest.wire import pause_s

_KEPT = ["etag", "location", "content-type", "retry-after", "last-modified", "link"]


def kept_headers(catalogue: Catalogue | None) -> frozenset[str]:
    """The headers of answers that anybody needs: the usual ones, and those of which the catalogue speaks."""
    no_schemas = {"operations": {"__all__": {"body", "parameters"}}}
    plain = repr(catalogue.model_dump(exclude=no_schemas)) if catalogue else ""
    return frozenset(
        {*_KEPT, *(name.lower() for name in re.findall(r"\$(?:response|before)\.header\.([\w-]+)", plain))}
    )


def complaint(answer: Answer) -> str:
    """What a service answered, in words, with the fix for what is usual."""
    fixes = {
        401: ". Fix: its key is not valid (any more); put a new one into the vault and try again",
        403: ". Fix: its key is not for this; get one that is",
        412: ": somebody else has changed it meanwhile",
        429: f": too many requests; try again in {pause_s(answer.headers):.0f} s",
    }
    told = shown(answer.body, 200) if answer.body not in (None, "") else ""
    return f"answered {answer.status}" + (f" {told}" if told else "") + fixes.get(answer.status, "")
