"""Catalogues from files: those that come with this program, one's own, and descriptions of services (OpenAPI 3).

What takes an operation back is derived from a description only where it is obvious, and is unproven: making and
deleting, replacing and replacing with what was there before. Each GET becomes a read-back of the name of its operation,
and a compensating request targets what that shows, so a description says nothing of how anything else is taken back.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from autoclave.config.recipe import parse_yaml
from autoclave.core import InputError
from autoclave.core.files import existing_file
from autoclave.core.install import needing
from autoclave.core.json import nearest, shown
from autoclave.runtime.rest.catalogue import Catalogue, catalogue_from, is_header, parameters_in
from autoclave.runtime.rest.connection import is_file_name

SHIPPED = Path(__file__).parent / "catalogues"
_METHODS = ("get", "head", "post", "put", "patch", "delete")
Json = Mapping[str, Any]


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a file, or one that comes with this program by its name.

    A file may also be the description of a service by OpenAPI 3, in YAML or JSON; see above.

    Raises InputError where there is none, or it is damaged, and HostError where a library is missing.
    """
    path = existing_file(Path(name), "catalogue") if is_file_name(name) else SHIPPED / f"{name}.yaml"
    if not path.exists():
        fix = nearest(name, sorted(each.stem for each in SHIPPED.glob("*.yaml")))
        raise InputError(
            f"catalogue {shown(name)}: there is none; {fix}, or give a file; contrib/catalogues in the source has more"
        )
    if not path.is_file():
        raise InputError(f"catalogue {path}: is not a plain file")
    try:
        plain: object = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: no YAML ({error})") from None
    with needing("catalogues of services", "runtime"):
        if isinstance(plain, Mapping) and "openapi" in plain:
            return catalogue_of_openapi(cast("Json", plain), path.stem, str(path))
        return catalogue_from(plain, str(path))


def catalogue_of_openapi(document: Json, service: str, where: str = "OpenAPI") -> Catalogue:
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
    prefix = urlsplit(servers[0]).path.rstrip("/") if servers else ""
    described = list(_described(document, prefix))
    by_path: dict[str, dict[str, _Described]] = {}
    for each in described:
        by_path.setdefault(each.path, {})[each.method] = each
    items: dict[str, dict[str, _Described]] = {}
    for path, methods in by_path.items():
        collection, _, last = path.rpartition("/")
        if last in [f"{{{name}}}" for name in parameters_in(last)]:
            items.setdefault(collection, methods)
    return {
        "service": service,
        "read_backs": {each.name: _read_back(each) for each in described if each.method == "GET"},
        "operations": {
            each.name: _operation(each, by_path[each.path], items.get(each.path.rstrip("/"), {})) for each in described
        },
    }


class _References:
    """The targets of the references in a document."""

    def __init__(self, document: Json) -> None:
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        registry: Registry[Any] = Registry()
        self._resolver = registry.with_resource("", DRAFT202012.create_resource(document)).resolver()

    def resolved(self, value: Any) -> Any:
        """A value, or what it refers to; what refers to nothing but itself may be anything."""
        seen: set[str] = set()
        while isinstance(value, Mapping) and isinstance(name := value.get("$ref"), str):
            if name in seen:
                return {}
            seen.add(name)
            value = self._named(name)
        return value

    def _named(self, name: str) -> Any:
        from referencing.exceptions import Unresolvable

        try:
            if name.startswith("#/"):
                return self._resolver.lookup(name).contents
        except Unresolvable:
            pass
        raise InputError(f"OpenAPI: {name}: there is nothing of that name in the document")

    def schema(self, given: Any) -> dict[str, Any]:
        """A schema with its references, and what they name at the same places as in the document."""
        from jsonpointer import JsonPointer

        top = dict(self.resolved(given))
        named: dict[str, Any] = {}
        left: list[Any] = [top]
        while left:
            each = left.pop()
            if isinstance(each, Mapping):
                if isinstance(name := each.get("$ref"), str) and name not in named:
                    named[name] = self._named(name)
                    left.append(named[name])
                left += each.values()
            elif isinstance(each, list):
                left += each
        tree: dict[str, Any] = {}
        for name in sorted(named, key=len):  # what is within another one is there already, and the same
            JsonPointer(unquote(name[1:])).set(tree, named[name], create=True)
        return {**tree, **top}


@dataclass(frozen=True, slots=True)
class _Described:
    """An operation as the description has it, with the parameters of its path; its schemas have references."""

    name: str
    method: str
    path: str
    plain: Json
    parameters: tuple[Json, ...]
    references: _References

    def content_of_answer(self) -> tuple[str, Json]:
        """The type and the schema of what it answers when it was done."""
        found = {str(status): each for status, each in self.plain.get("responses", {}).items()}
        good = min((status for status in found if status.startswith("2")), default="")
        return _content(self.references.resolved(found.get(good, {})))

    def properties_of_answer(self) -> dict[str, Json]:
        schema = self.references.resolved(self.content_of_answer()[1])
        return {name: self.references.resolved(each) for name, each in schema.get("properties", {}).items()}

    def set_by_service(self, *lasting: str) -> list[str]:
        """Pointers to what the service alone sets, but for identifiers."""
        only = [name for name, each in self.properties_of_answer().items() if each.get("readOnly")]
        return [f"/{name}" for name in only if name not in (*lasting, "id")]


def _described(document: Json, prefix: str) -> Iterator[_Described]:
    references = _References(document)
    names: dict[str, str] = {}
    for path, given in document.get("paths", {}).items():
        item = references.resolved(given)
        for method in (each for each in _METHODS if each in item):
            plain = item[method]
            name = str(plain.get("operationId") or re.sub(r"\W+", "_", f"{method}{path}").strip("_"))
            told = f"{method.upper()} {path}"
            if names.setdefault(name, told) != told:
                raise InputError(f"OpenAPI: {told}: has the name {name!r}, as {names[name]} has; give operationId")
            given = [references.resolved(each) for part in (item, plain) for each in part.get("parameters", [])]
            parameters = {(each["in"], each["name"]): each for each in given}
            yield _Described(name, method.upper(), prefix + path, plain, tuple(parameters.values()), references)


def _content(plain: Json) -> tuple[str, Json]:
    """The type of a content, JSON before all others, and its schema."""
    types: Mapping[str, Any] = plain.get("content", {})
    best = next((each for each in types if re.fullmatch(r"application/(.+\+)?json", each)), next(iter(types), ""))
    return best, types.get(best, {}).get("schema", {})


def _read_back(described: _Described) -> dict[str, Any]:
    kind, _ = described.content_of_answer()
    form = "json" if "json" in kind or not kind else "icalendar" if "calendar" in kind else "bytes"
    volatile = described.set_by_service(*parameters_in(described.path))
    return {"path": described.path, "form": form, "volatile": volatile}


def _operation(own: _Described, here: Mapping[str, _Described], item: Mapping[str, _Described]) -> dict[str, Any]:
    """`here`: all operations of its path; `item`: all of the path of what is made there."""
    plain: dict[str, Any] = {
        "method": own.method,
        "path": own.path,
        "summary": str(own.plain.get("summary", "")),
        "parameters": {each["name"]: _parameter(each, own.references) for each in own.parameters if _is_ours(each)},
        "is_guarded": any(str(each["name"]).lower() == "if-match" for each in own.parameters),
    }
    if "requestBody" in own.plain:
        body = own.references.resolved(own.plain["requestBody"])
        kind, schema = _content(body)
        plain["body"] = {
            "content_type": kind or "application/json",
            "is_required": bool(body.get("required", False)),
            "form": own.references.schema(schema),
        }
    if own.method == "POST":
        plain |= _undo_of_creation(own, item)
    elif own.method not in ("GET", "HEAD"):
        plain |= _undo_of_change(own, here)
    return plain


def _is_ours(parameter: Json) -> bool:
    """Return whether it is an argument; headers of HTTP itself, and those with a place of their own, are left out."""
    return parameter["in"] in ("path", "query") or (parameter["in"] == "header" and is_header(str(parameter["name"])))


def _parameter(plain: Json, references: _References) -> dict[str, Any]:
    is_required = bool(plain.get("required", plain["in"] == "path"))
    return {"place": plain["in"], "is_required": is_required, "form": references.schema(plain.get("schema", {}))}


def _undo_of_change(own: _Described, here: Mapping[str, _Described]) -> dict[str, Any]:
    """PUT, PATCH and DELETE of something that a GET shows."""
    if "GET" not in here:
        return {}
    place = {name: f"$request.path.{name}" for name in parameters_in(own.path)}
    undo: list[dict[str, Any]] = []
    if own.method == "PUT" and "DELETE" in here:
        undo.append({"operation": here["DELETE"].name, "arguments": place, "when": "absent"})
    back = here.get("PUT") or (here.get("PATCH") if own.method == "PATCH" else None)
    if back and "requestBody" in back.plain:
        body = {"of": "$before.body", "without": here["GET"].set_by_service()}
        undo.append({"operation": back.name, "arguments": {**place, "body": body}, "when": "existed"})
    return {"read_back": here["GET"].name, "undo": undo}


def _undo_of_creation(own: _Described, item: Mapping[str, _Described]) -> dict[str, Any]:
    """POST to a collection whose items can be shown."""
    if "GET" not in item:
        return {}
    new = parameters_in(item["GET"].path)[-1]
    id_of_new = {new: f"$response.body#/{new if new in own.properties_of_answer() else 'id'}"}
    undo: list[dict[str, Any]] = []
    if "DELETE" in item:
        place = {each: f"$request.path.{each}" for each in parameters_in(own.path)}
        undo = [{"operation": item["DELETE"].name, "arguments": {**place, **id_of_new}, "when": "absent"}]
    return {"read_back": item["GET"].name, "subject": id_of_new, "undo": undo}
