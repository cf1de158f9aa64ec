"""`autoclave recipes`."""

import json
import re
import shutil
import textwrap
from pathlib import Path

import click

from autoclave.config.recipe import find_recipe, shipped_recipes
from autoclave.core import InputError


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def recipes(context: click.Context, as_json: bool) -> None:
    """List the recipes that come with Autoclave. Each can be given by its name where a command takes a recipe.

    Example: autoclave recipes
    """
    if context.invoked_subcommand:
        return
    found = {name: _described(path.read_text(encoding="utf-8")) for name, path in shipped_recipes().items()}
    if as_json:
        rows = [{"name": name, "hardware": hardware, "about": about} for name, (hardware, about) in found.items()]
        click.echo(json.dumps(rows, indent=2))
        return
    for name, (hardware, about) in found.items():
        click.echo(f"{name:<34}{hardware:<18}{textwrap.shorten(about, 90, placeholder=' ...')}")


def _described(text: str) -> tuple[str, str]:
    """Return the hardware and the first sentence of the comment that a recipe begins with."""
    hardware = re.match(r"# hardware: (.+)\n#\n", text)
    comment = text[hardware.end() if hardware else 0 :].partition("\n#\n")[0]
    lines = [line.removeprefix("# ") for line in comment.splitlines() if line.startswith("#")]
    sentence = re.split(r"[.;] ", " ".join(lines), maxsplit=1)[0]
    return hardware[1] if hardware else "CPU", sentence.removesuffix(".")


@recipes.command()
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; NAME.yaml here by default.")
def copy(name: str, out: Path | None) -> None:
    """Copy a recipe into a file of your own, which is never overwritten.

    Example: autoclave recipes copy demo --out mine.yaml
    """
    source = find_recipe(name)
    place = out or Path(source.name)
    if place.exists():
        raise InputError(f"{place}: exists. Fix: --out with another name")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    click.echo(f"{place}")
