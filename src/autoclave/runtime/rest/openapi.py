"""A catalogue out of the description of a service (OpenAPI 3). What is derived here is unproven. Pure.

What takes an operation back is, in this order: what the extension `x-undo` of the operation says (fields of
`OperationSpec`: `undo`, `read_back`, `subject`, `is_guarded`); a link of its answer to an operation that deletes; the
obvious: making and deleting, replacing and replacing with what was there before. Each GET becomes a read-back of the
name of its operation. A description comes from elsewhere, so a compensating request may target nothing but what the
operation itself changed, at the path of its read-back or below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from autoclave.config.renamed import RENAMED_IN_CATALOGUES
from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.runtime.rest.catalogue import Catalogue, catalogue_from
from autoclave.runtime.rest.fields import is_header, parameters_in, shape_of
from autoclave.runtime.rest.references import References

_METHODS = ("get", "head", "post", "put", "patch", "delete")
_SET_BY_US = ("accept", "content-type", "authorization", "if-match", "if-none-match")
_EXTENSION = frozenset({"undo", "read_back", "subject", "is_guarded"})
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Described:
    """An operation as the description has it, with the parameters of its path; only its schemas have references."""

    name: str
    method: str
    path: str
    plain: Json
    parameters: tuple[Json, ...]
    references: References = field(repr=False)

    @property
    def is_guarded(self) -> bool:
        return any(str(each.get("name", "")).lower() == "if-match" for each in self.parameters)

    @property
    def answer(self) -> Json:
        """The description of its success."""
        found = {str(status): each for status, each in self.plain.get("responses", {}).items()}
        return next((found[status] for status in sorted(found) if status.startswith("2")), {})


def catalogue_of_openapi(document: Json, service: str, where: str = "OpenAPI") -> Catalogue:
    """The catalogue that a description of a service gives.

    Raises:
        InputError: it is no description of version 3, or says something that cannot be.
    """
    if not str(document.get("openapi", "")).startswith("3."):
        raise InputError(f"{where}: openapi = {shown(document.get('openapi'))}: must be of version 3")
    try:
        plain = _catalogue(document, service)
    except (KeyError, AttributeError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise InputError(f"{where}: is no description by OpenAPI 3 that can be read ({why})") from None
    return catalogue_from(plain, where)


def _catalogue(document: Json, service: str) -> dict[str, Any]:
    servers = [str(each.get("url", "")) for each in document.get("servers", [])]
    server = next((each for each in servers if each.startswith("https://") and "{" not in each), "")
    prefix = urlsplit(server or (servers[0] if servers else "")).path.rstrip("/")
    described = list(_described(document, prefix))
    all_of_them = _All(described)
    return {
        "service": service,
        "is_described": True,
        "documentation": str(document.get("externalDocs", {}).get("url", "")),
        "base_url": server.removesuffix("/").removesuffix(prefix) if server else "",
        "read_backs": {each.name: _read_back(each) for each in described if each.method == "GET"},
        "operations": {each.name: _operation(each, all_of_them) for each in described},
    }


# --- Reading ---------------------------------------------------------------------------------------------------------


def _described(document: Json, prefix: str) -> Iterator[_Described]:
    references = References(document)
    names: dict[str, str] = {}
    for path, given in document.get("paths", {}).items():
        item = references.resolved(given)
        for method in _METHODS:
            if method in item:
                plain = _without_references(item[method], references)
                name = str(plain.get("operationId") or re.sub(r"\W+", "_", f"{method}{path}").strip("_"))
                told = f"{method.upper()} {path}"
                if names.setdefault(name, told) != told:
                    raise InputError(f"OpenAPI: {told}: has the name {name!r}, as {names[name]} has; give operationId")
                all_of_them = [references.resolved(each) for each in item.get("parameters", [])] + plain["parameters"]
                parameters = {(each["in"], each["name"]): each for each in all_of_them}
                yield _Described(name, method.upper(), prefix + path, plain, tuple(parameters.values()), references)


def _without_references(plain: Json, references: References) -> dict[str, Any]:
    """An operation with what its references name in their place, but for those in schemas."""
    responses = {
        status: {**each, "links": references.all_resolved(each.get("links"))}
        for status, each in references.all_resolved(plain.get("responses")).items()
    }
    parameters = [references.resolved(each) for each in plain.get("parameters", [])]
    body = {"requestBody": references.resolved(plain["requestBody"])} if "requestBody" in plain else {}
    return {**plain, **body, "responses": responses, "parameters": parameters}


def _content(plain: Json) -> tuple[str, Json]:
    """The type of a content, JSON before all others, and its schema."""
    types: Mapping[str, Any] = plain.get("content", {})
    best = next((each for each in types if re.fullmatch(r"application/(.+\+)?json", each)), next(iter(types), ""))
    return best, types.get(best, {}).get("schema", {})


def _properties(described: _Described | None) -> Mapping[str, Any]:
    if described is None:
        return {}
    schema = described.references.resolved(_content(described.answer)[1])
    return described.references.all_resolved(schema.get("properties"))


def _read_back(described: _Described) -> dict[str, Any]:
    found = {"path": described.path}
    kind, _ = _content(described.answer)
    form = "json" if "json" in kind or not kind else "icalendar" if "calendar" in kind else "bytes"
    return {**found, "form": form, "volatile": _read_only(described, lasting=parameters_in(described.path))}


def _read_only(described: _Described | None, lasting: list[str]) -> list[str]:
    """Pointers to what the service alone sets."""
    only = [name for name, each in _properties(described).items() if each.get("readOnly")]
    return [f"/{name}" for name in only if name not in (*lasting, "id")]


# --- Deriving --------------------------------------------------------------------------------------------------------


class _All:
    """All operations of a description, to be found by their names, paths, and those of collections."""

    def __init__(self, described: list[_Described]) -> None:
        self.by_name = {each.name: each for each in described}
        self.by_path: dict[str, dict[str, _Described]] = {}
        self.items: dict[str, str] = {}
        """The path of the items of a collection, by its own."""
        for each in described:
            self.by_path.setdefault(each.path, {})[each.method] = each
            collection, _, last = each.path.rpartition("/")
            if parameters_in(last) and last == f"{{{parameters_in(last)[0]}}}":
                self.items.setdefault(collection, each.path)


def _operation(own: _Described, all_of_them: _All) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "method": own.method,
        "path": own.path,
        "summary": str(own.plain.get("summary", "")),
        "parameters": {each["name"]: _parameter(each, own.references) for each in own.parameters if _is_ours(each)},
        "scopes": sorted(
            {scope for each in own.plain.get("security", [])[:1] for scopes in each.values() for scope in scopes}
        ),
    }
    if "requestBody" in own.plain:
        kind, schema = _content(own.plain["requestBody"])
        is_required = bool(own.plain["requestBody"].get("required", False))
        plain["body"] = {
            "content_type": kind or "application/json",
            "is_required": is_required,
            "form": own.references.schema(schema),
        }
    if own.method not in ("GET", "HEAD"):
        derived = _of_item(own, all_of_them) if own.method != "POST" else _of_creation(own, all_of_them)
        plain |= {**derived, **_of_links(own, all_of_them), "is_guarded": own.is_guarded}
        extension: Any = own.plain.get("x-undo", {})
        plain |= _extended(own, {"undo": extension} if isinstance(extension, list) else dict(extension), all_of_them)
    return plain


def _extended(own: _Described, extension: dict[str, Any], all_of_them: _All) -> dict[str, Any]:
    """What a description says of taking back: nobody has proven it, and what permits an operation is not its to say."""
    if foreign := sorted(extension.keys() - _EXTENSION):
        new = RENAMED_IN_CATALOGUES.get(foreign[0])
        rule = f"is now called {new}" if new else f"must be one of {', '.join(sorted(_EXTENSION))}"
        raise InputError(f"OpenAPI: {own.name}: x-undo.{foreign[0]}: {rule}")
    read_back = all_of_them.by_name.get(str(extension.get("read_back", "")))
    if read_back is not None and not _is_near(own.path, read_back.path):
        raise InputError(
            f"OpenAPI: {own.name}: x-undo.read_back: {read_back.path} is about something else than {own.path}; only a "
            "catalogue of your own can say that it shows what that changes"
        )
    for undo in extension.get("undo", []):
        if "status" in undo:
            raise InputError(f"OpenAPI: {own.name}: x-undo: status: is for catalogues, not for descriptions")
    return extension


def _is_near(path: str, other: str) -> bool:
    """Whether one path is that of the other, or of something in it."""
    one, two = (shape_of(each).rstrip("/") + "/" for each in (path, other))
    return one.startswith(two) or two.startswith(one)


def _is_ours(parameter: Json) -> bool:
    """Whether it is an argument; headers that are not, such as those of HTTP itself, are left out if they may be."""
    place, name = parameter["in"], str(parameter["name"])
    is_asked_for = name.lower() not in _SET_BY_US and (is_header(name) or bool(parameter.get("required")))
    return place in ("path", "query") or (place == "header" and is_asked_for)


def _parameter(plain: Json, references: References) -> dict[str, Any]:
    return {
        "place": plain["in"],
        "is_required": bool(plain.get("required", plain["in"] == "path")),
        "form": references.schema(plain.get("schema", {})),
    }


def _of_item(own: _Described, all_of_them: _All) -> dict[str, Any]:
    """PUT, PATCH and DELETE of something that a GET shows."""
    here = all_of_them.by_path[own.path]
    if "GET" not in here:
        return {}
    place = {name: f"$request.path.{name}" for name in parameters_in(own.path)}
    undo: list[dict[str, Any]] = []
    if own.method == "PUT" and "DELETE" in here:
        undo.append({"operation": here["DELETE"].name, "arguments": place, "when": "absent"})
    back = here.get("PUT") or (here.get("PATCH") if own.method == "PATCH" else None)
    if back and "requestBody" in back.plain:
        body = {"of": "$before.body", "without": _read_only(here["GET"], lasting=[])}
        undo.append({"operation": back.name, "arguments": {**place, "body": body}, "when": "existed"})
    return {"read_back": here["GET"].name, "undo": undo}


def _of_creation(own: _Described, all_of_them: _All) -> dict[str, Any]:
    """POST to a collection whose items can be shown and deleted."""
    item = all_of_them.items.get(own.path.rstrip("/"))
    if item is None:
        return {}
    here, new = all_of_them.by_path[item], parameters_in(item)[-1]
    name = new if new in _properties(own) else "id"
    place = {each: f"$request.path.{each}" for each in parameters_in(own.path)}
    id_of_new = {new: f"$response.body#/{name}"}
    found: dict[str, Any] = {"read_back": here["GET"].name, "subject": id_of_new} if "GET" in here else {}
    if "DELETE" in here:
        arguments = {**place, **id_of_new}
        found["undo"] = [{"operation": here["DELETE"].name, "arguments": arguments, "when": "absent"}]
    return found


def _of_links(own: _Described, all_of_them: _All) -> dict[str, Any]:
    """What links of an answer say: to what shows what was made, and to what deletes it."""
    found: dict[str, Any] = {}
    for link in own.answer.get("links", {}).values():
        target = all_of_them.by_name.get(str(link.get("operationId", "")))
        arguments = {str(name).rpartition(".")[2]: value for name, value in link.get("parameters", {}).items()}
        if target is None or not _is_near(own.path, target.path):
            continue
        if target.method == "GET":
            found |= {"read_back": target.name, "subject": arguments}
        elif target.method == "DELETE":
            found["undo"] = [{"operation": target.name, "arguments": arguments, "when": "absent"}]
    return found
