"""What the documentation site adds to docs/: a navigation from its index, and reference pages from the code.

Pages are written for GitHub too, so a link may lead to a file outside of docs/: the site shows its path instead.
"""

from __future__ import annotations

import inspect
import json
import re
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo

DOCS = Path(__file__).parents[1]
PACKAGES = (
    "core",
    "config",
    "judge",
    "problems",
    "tasks",
    "environments",
    "algorithms",
    "rollout",
    "evaluation",
    "act",
)
_COMMENT = re.compile(r"^(<!-- .* -->)$", re.MULTILINE)  # a table may begin in the next line
_DIALOG = 'data-md-component="search" role="dialog"'
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/index.md: its headings, and the pages listed below each."""
    nav: list[Any] = [{"Home": "index.md"}]
    section: list[Any] = []
    for line in (DOCS / "index.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = []
            nav.append({line[3:]: section})
        elif (found := re.match(r"- \[(.+?)\]\(([\w./-]+\.md)\)", line)) and nav[1:]:
            section.append({found[1]: found[2]})
        elif re.fullmatch(r"[A-Z][\w ]+", line) and nav[1:]:
            section = []
            next(iter(nav[-1].values())).append({line: section})
    generated = [{"Command line": "reference/cli.md"}, {"Settings": "reference/settings.md"}]
    generated += [{"HTTP API": "reference/http.md"}, {"Python": "reference/python.md"}]
    generated.append({"Licences of dependencies": "reference/licences.md"})
    for each in nav:
        if "Reference" in each:
            each["Reference"] += generated
        if "Results" in each:
            each["Results"] = "results.md"
    config.nav = [each for each in nav if "Limitations" not in each]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated."""
    for name, page in (("cli", cli_page), ("settings", settings_page), ("http", http_page), ("python", python_page)):
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    licences = runpy.run_path(str(DOCS / "_site" / "licences.py"))["page"]()
    files.append(File.generated(config, "reference/licences.md", content=licences))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave docs/ by the path that they lead to, and end HTML blocks as GitHub does."""
    here = (DOCS / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        if "://" in target or (path := (here / target).resolve()).is_relative_to(DOCS) or not path.exists():
            return link[0]
        name = path.relative_to(DOCS.parent)
        return text if str(name) in text else f"{text} (`{name}`)"

    return _LINK.sub(shown, _COMMENT.sub(r"\1\n", markdown))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put pictures into the page, which gives them its colours."""

    def drawn(image: re.Match[str]) -> str:
        svg = ((DOCS / page.file.src_uri).parent / image[1]).read_text(encoding="utf-8")
        return svg.replace("@media (prefers-color-scheme: dark)", '[data-md-color-scheme="slate"]')

    return re.sub(r'<img alt="[^"]*" src="([\w-]+\.svg)" />', drawn, html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take what makes search work without a server from this site, not from the network; name the dialog of search."""
    output = output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')
    return output.replace(_SHIM, f"{'../' * page.file.src_uri.count('/')}_site/worker.js")


def on_post_template(output: str, **_: Any) -> str:
    """Do the same in the page of an unknown address, whose links begin at the root."""
    return output.replace(_SHIM, "/_site/worker.js")


def cli_page() -> str:
    """Return the page of all commands, with their help as it is printed."""
    from autoclave.cli.main import cli

    return "# Command line\n\n" + "\n\n".join(_commands(cli, "autoclave", None))


def _commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name.split()[-1], parent=parent, max_content_width=100)
    yield f"{'#' * min(4, 1 + len(name.split()))} `{name}`\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            if (found := command.get_command(context, each)) and not found.hidden:
                yield from _commands(found, f"{name} {each}", context)


def settings_page() -> str:
    """Return the page of the settings of training, with type, default and meaning of each."""
    from autoclave.config import TrainConfig

    parts = ["# Settings\n\n`autoclave config show RECIPE` prints the values of a recipe, and where each comes from."]
    waiting: list[type[BaseModel]] = [TrainConfig]
    seen: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop(0)
        if model in seen:
            continue
        seen.add(model)
        parts.append(_settings_of(model))
        waiting += [each for field in model.model_fields.values() for each in _models_in(field.annotation)]
    return "\n\n".join(parts)


def _settings_of(model: type[BaseModel]) -> str:
    texts = _texts_of_fields(model)
    rows = [f"## {model.__name__}", inspect.getdoc(model) or "", "| setting | type | default | meaning |"]
    table = ["| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        cells = f"`{name}`", f"`{_type_of(field)}`", f"`{_default_of(field)}`", texts.get(name, "")
        table.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n\n".join(rows) + "\n" + "\n".join(table)


def _texts_of_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field, of the model and its bases."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        source = textwrap.dedent(inspect.getsource(base))
        for name, text in re.findall(r'^    (\w+): [^\n]+\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL):
            found[name] = re.sub(r"\s+", " ", text)
    return found


def _type_of(field: FieldInfo) -> str:
    return re.sub(r"\b[\w.]+\.(\w+)", r"\1", inspect.formatannotation(field.annotation))


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return type(value).__name__ if isinstance(value, BaseModel) else repr(value)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def http_page() -> str:
    """Return the page of the requests that the judge service answers, with the fields of their bodies."""
    from fastapi import FastAPI

    from autoclave.service.routes import jobs, monitoring, problems, runs

    app = FastAPI(title="Autoclave judge", separate_input_output_schemas=False)
    for module in (problems, jobs, runs, monitoring):
        app.include_router(module.router)
    described = app.openapi()
    parts = [_HTTP]
    for path, methods in described["paths"].items():
        parts += [_request(f"{method.upper()} {path}", request) for method, request in methods.items()]
    parts.append("## Types")
    schemas = described["components"]["schemas"]
    parts += [_schema(name, schema) for name, schema in schemas.items() if "ValidationError" not in name]
    return "\n\n".join(parts)


_HTTP = """# HTTP API

The requests of `autoclave serve`, from the same description as `/v1/openapi.json`, which a server returns. [Judge
service](../how-to/service.md) explains them with examples: scopes, durability, cancellation, overload. An error is
`{"error": {"kind", "message"}}` with the status 400 (input), 401 and 403 (token), 404, 413 (too large), 429 or 503 (try
again after `Retry-After` seconds). The protocols of other sandboxes have [their own page](../how-to/compatible.md).

## Requests"""


def _request(title: str, request: dict[str, Any]) -> str:
    lines = [f"### `{title}`", request.get("description", "")]
    if rows := [(each["name"], each["schema"], each.get("description", "")) for each in request.get("parameters", [])]:
        lines.append(_table("parameter", rows))
    for kind, body in request.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body: {_type_in(body['schema'])}, `{kind}`.")
    for status, answer in request["responses"].items():
        contents = [body.get("schema", {}) for body in answer.get("content", {}).values()]
        shown = ", ".join(filter(None, map(_type_in, contents)))
        if status != "422":
            text = answer["description"].replace("Successful Response", "")
            lines.append(f"{status}: {' '.join(filter(None, (text, shown))) or 'done'}")
    return "\n\n".join(filter(None, lines))


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}", schema.get("description", "")]
    if "enum" in schema:
        lines.append("One of " + ", ".join(f"`{each}`" for each in schema["enum"]) + ".")
    if fields := schema.get("properties"):
        lines.append(_table("field", [(key, field, field.get("description", "")) for key, field in fields.items()]))
    return "\n\n".join(filter(None, lines))


def _table(head: str, rows: list[tuple[str, dict[str, Any], str]]) -> str:
    """Return a table without the columns that are empty."""
    cells = [(head, "type", "default", "meaning")]
    for name, schema, text in rows:
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        cells.append((f"`{name}`", _type_in(schema), default, " ".join(text.split())))
    columns = [column for column in zip(*cells, strict=True) if any(column[1:])]
    lines = [" | ".join(row) for row in zip(*columns, strict=True)]
    return "\n".join(f"| {line} |" for line in (lines[0], " | ".join(["---"] * len(columns)), *lines[1:]))


def _type_in(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(map(_type_in, choices))
    if schema.get("type") == "array":
        return f"list of {_type_in(schema['items'])}"
    return schema.get("type", "")


def python_page() -> str:
    """Return the page of the public names of each package, which mkdocstrings fills."""
    parts = ["# Python\n\nNames that may be relied on. Others may change in any release."]
    for package in PACKAGES:
        module = __import__(f"autoclave.{package}", fromlist=["_"])
        names = sorted(getattr(module, "__all__", None) or _imported_names(package))
        parts.append(f"## `autoclave.{package}`\n\n{(module.__doc__ or '').strip()}")
        parts += [f"::: autoclave.{package}.{name}" for name in names]
    return "\n\n".join(parts)


def _imported_names(package: str) -> list[str]:
    """Return what `__init__.py` exports by `import X as X`, without importing it."""
    content = (DOCS.parent / "src" / "autoclave" / package / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r"import (\w+) as \1$", content, re.MULTILINE)
