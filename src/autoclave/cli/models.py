"""`autoclave models`."""

import json

import click

from autoclave.config.model import PACKAGED_MODELS


@click.group()
def models() -> None:
    """Get pretrained models without a model hub.

    Example: autoclave models get smollm2-135m
    """


@models.command()
@click.argument("name", type=click.Choice(list(PACKAGED_MODELS)))
@click.option("--json", "as_json", is_flag=True, help="Print the name and the folder as JSON.")
def get(name: str, as_json: bool) -> None:
    """Convert the model of an installed package once, and print its folder in the cache.

    The setting model.path accepts NAME from then on.

    Example: autoclave models get smollm2-135m
    """
    from autoclave.models.policy import get_packaged_model

    folder = str(get_packaged_model(name))
    click.echo(json.dumps({"name": name, "path": folder}) if as_json else folder)
