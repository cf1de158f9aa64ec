"""Make a page of a template: one file that loads nothing.

Pages show text that a policy wrote. Three walls stand before it: the template escapes every value (only what is marked
as SVG of ours and our own script are exempt), the page's security policy runs that one script by its hash and loads
nothing, and characters that show as nothing or reorder text are spelled out (`made_visible`).
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autoclave.core.visible_text import made_visible
from autoclave.report import text

_HERE = Path(__file__).parent
TRANSCRIPT = _HERE / "episode.txt.j2"


def render_page(template: Path, script: Path | None, **values: Any) -> str:
    """The page that `template` makes of `values`, with `script` as its only script, or without any.

    Templates can include files of their folder and of this package. They get `script` and `script_digest`, for the
    element and for the security policy.
    """
    code = script.read_text("utf-8") if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = _environment((template.parent, _HERE)).get_template(template.name)
    return made_visible(page.render(**values, script=Markup(code), script_digest=digest))


def render_text(template: Path, **values: Any) -> str:
    """Return the text for a terminal that `template` makes of `values`. Nothing is escaped but invisible characters."""
    environment = _environment((template.parent,))
    environment.autoescape = False
    return made_visible(environment.get_template(template.name).render(**values))


def _environment(folders: Sequence[Path]) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "percent": text.percent,
        "points": text.points,
        "quantity": text.quantity,
        "signed": text.signed,
        "count": text.count,
        "shortened": text.shortened,
        "words": lambda value: str(value).replace("_", " "),
        "svg": Markup,  # of charts.py, which escapes its texts
    }
    environment.filters.update(filters)
    return environment
