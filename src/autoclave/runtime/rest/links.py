"""The header Link (RFC 8288): where an answer says that there is more. Pure, and in time of its length."""

from __future__ import annotations

import re

from autoclave.core import InputError
from autoclave.core.json import shown

_COMMA = re.compile(r"\s*(,|\Z)")
_TARGET = re.compile(r"\s*<([^<>]*)>\s*")
_PARAMETER = re.compile(r';\s*(?:([^\s"=;,<>]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";,<>]*)))?\s*)?')


def following(header: str) -> str:
    """The target of the link to what comes next; empty if there is none.

    Raises:
        InputError: it is no such header, or has several; to take that for the end would be to overlook what is there.
    """
    found, at = set[str](), 0
    while at < len(header):
        target = _TARGET.match(header, at)
        if target is None:
            if (comma := _COMMA.match(header, at)) is None:
                raise InputError(f"header link {shown(header[at:], 100)}: is no list of links")
            at = max(comma.end(), at + 1)
            continue
        at, relations = target.end(), ""
        while (parameter := _PARAMETER.match(header, at)) is not None:
            at = parameter.end()
            if (parameter[1] or "").lower() == "rel" and not relations:
                relations = parameter[2] if parameter[2] is not None else parameter[3] or ""
        if at < len(header) and header[at] != ",":
            raise InputError(f"header link {shown(header[at:], 100)}: is no list of links")
        if "next" in relations.lower().split():
            found.add(target[1])
    if len(found) > 1:
        raise InputError(f"header link {shown(header, 100)}: leads to several next pages")
    return found.pop() if found else ""
