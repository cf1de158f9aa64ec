"""Settings document themselves."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import get_args

import pytest

from autoclave import config
from autoclave.config import Config


def classes(base: type[Config]) -> Iterator[type[Config]]:
    """All settings classes."""
    for found in base.__subclasses__():
        yield found
        yield from classes(found)


for module in pkgutil.iter_modules(config.__path__):
    import_module(f"autoclave.config.{module.name}")
ALL = sorted(
    {found for found in classes(Config) if found.__module__.startswith("autoclave.config")},
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize("schema", ALL)
def test_every_setting_has_a_description(schema: type[Config]):
    (block,) = ast.parse(textwrap.dedent(inspect.getsource(schema))).body
    assert isinstance(block, ast.ClassDef)
    described = {
        field.target.id
        for field, text in pairwise(block.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and str(ast.literal_eval(text.value)).strip().endswith((".", "?"))
    }
    own = {name: schema.model_fields[name] for name in inspect.get_annotations(schema) if name in schema.model_fields}
    # The name of a choice, the only value that it may have, is described by the class.
    choices = {name for name, field in own.items() if get_args(field.annotation) == (field.default,)}
    assert own.keys() - choices <= described


@pytest.mark.parametrize("schema", ALL)
def test_every_block_of_settings_has_a_description_of_its_own(schema: type[Config]):
    assert (schema.__doc__ or "").strip().endswith((".", ")"))
    assert schema.__doc__ != Config.__doc__


@pytest.mark.parametrize("schema", ALL)
def test_every_block_of_settings_is_exported(schema: type[Config]):
    assert schema.__name__ in config.__all__


def has_defaults(schema: type[Config]) -> bool:
    try:
        schema()
    except ValueError:  # a field is required, or one of several
        return False
    return True


@pytest.mark.parametrize("schema", [*filter(has_defaults, ALL)])
def test_every_default_is_valid(schema: type[Config]):
    assert schema.model_validate(schema().model_dump()) == schema()
