"""What users rely on, a line per name, as `public_surface.txt` pins it; docs/reference/stability.md explains it.

python -m tests.public_surface     write the file anew, to accept a change
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import yaml
from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "public_surface.txt"
INTERFACES = {  # of plugins, in modules of packages that export nothing
    "config.base": "Fraction",
    "core.closing": "Closing",
    "core.futures": "completed",
    "environments.tools": "ToolEnvironment schema_of tool_calls written_call",
    "workspaces": "Declared LocalWorkspaces Tool ToolResult Workspace WorkspaceLimits Workspaces",
    "runtime.interface": "Choice InDoubt Manager NothingLeft NotRedone NotUndone Plan",
    "runtime.opening": "open_session",
    "compose.training": "train",
    "runs.reader": "Run read_run",
    "runs.rollouts": "RecordedRollout read_rollouts",
    "service.client": "RemoteJudge",
}


def surface() -> list[str]:
    """Return the lines, sorted."""
    parts = (_python(), _commands(), _settings(), _routes(), _metrics(), _entry_points())
    return sorted({line for part in parts for line in part})


# --- Python ----------------------------------------------------------------------------------------------------------


def _python() -> Iterator[str]:
    packages = runpy.run_path(str(ROOT / "docs" / "_site" / "hooks.py"))["PACKAGES"]
    for package in sorted({*packages, "integrations", "sandbox"}):
        module = importlib.import_module(f"autoclave.{package}")
        for name in module.__all__:
            yield from _name(f"autoclave.{package}.{name}", getattr(module, name))
    for place, names in INTERFACES.items():
        for name in names.split():
            yield from _name(f"autoclave.{place}.{name}", getattr(importlib.import_module(f"autoclave.{place}"), name))


def _name(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"python {name}{_signature(value) if callable(value) else ''}"
        return
    is_settings = issubclass(value, BaseModel)  # their fields are settings
    yield f"python {name}{'' if is_settings else _signature(value)}"
    for member, each in vars(value).items():
        if member.startswith("_") or is_settings:
            continue
        if inspect.isfunction(function := getattr(each, "__func__", each)):
            yield f"python {name}.{member}{_signature(function)}"
        elif isinstance(each, property) or member in getattr(value, "__members__", ()):
            yield f"python {name}.{member}"


def _signature(value: Any) -> str:
    try:
        found = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    return re.sub(r"<(?:function |class ')?([\w.]+)[^>]*>", r"\1", re.sub(r"\b(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", found))


# --- The command line ------------------------------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    from autoclave.cli.main import cli

    waiting: list[tuple[str, click.Command]] = [("autoclave", cli)]
    while waiting:
        name, command = waiting.pop()
        yield f"command {name}"
        for parameter in command.params:
            names = parameter.human_readable_name
            if isinstance(parameter, click.Option):
                names = "/".join([*parameter.opts, *parameter.secondary_opts])
            yield f"command {name} {names}{' (required)' if parameter.required else ''}"
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = [(each, command.get_command(context, each)) for each in command.list_commands(context)]
            waiting += [(f"{name} {each}", inner) for each, inner in found if inner and not inner.hidden]


# --- Settings --------------------------------------------------------------------------------------------------------


def _settings() -> Iterator[str]:
    config = importlib.import_module("autoclave.config")
    for name in config.__all__:
        model = getattr(config, name)
        if inspect.isclass(model) and issubclass(model, BaseModel):
            yield from (f"setting {name}.{key}{_default(field)}" for key, field in model.model_fields.items())


def _default(field: Any) -> str:
    if field.is_required():
        return " (required)"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if isinstance(value, BaseModel) else f" = {value!r}"


# --- HTTP and metrics ------------------------------------------------------------------------------------------------


def _routes() -> Iterator[str]:
    from autoclave.config import ServeConfig
    from autoclave.service.server import create_app

    config = ServeConfig.model_validate({"compatible": {"protocols": ("sandbox_fusion", "piston")}})
    parts = SimpleNamespace(config=config, dispatcher=SimpleNamespace(slots=1))  # all that the description reads
    described = create_app(cast("Any", parts)).openapi()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            query = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
            yield f"http {method.upper()} {path}{'?' + '&'.join(query) if query else ''}"
    for name, schema in described["components"]["schemas"].items():
        required = schema.get("required", ())
        for field in schema.get("properties", ()):
            yield f"http {name}.{field}{' (required)' if field in required else ''}"


def _metrics() -> Iterator[str]:
    from autoclave.service.metrics import Metrics

    pages = yaml.safe_load((ROOT / "docs" / "reference" / "metrics.yaml").read_text(encoding="utf-8"))
    for section in pages.values():
        yield from (f"metric {name}" for name, *_ in section)
    yield from (f"metric {name}" for name in re.findall(r"^# TYPE (\w+)", Metrics().text({}), re.MULTILINE))


# --- Plugins ---------------------------------------------------------------------------------------------------------


def _entry_points() -> Iterator[str]:
    call = re.compile(r'(?:find_plugin\(|with_plugins\(|_GROUP = )"(autoclave\.\w+)"')
    for path in (ROOT / "src").rglob("*.py"):
        yield from (f"entry point {group}" for group in call.findall(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    FILE.write_text("\n".join(surface()) + "\n", encoding="utf-8")
