"""Variants of catalogues that ship, for what these do not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from autoclave.runtime.rest.loading import SHIPPED


def plain(name: str) -> Any:
    return yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())


def written(folder: Path, catalogue: Any) -> str:
    """The file of a catalogue."""
    path = folder / "catalogue.yaml"
    path.write_text(yaml.safe_dump(catalogue))
    return str(path)


def without_keys(folder: Path) -> str:
    """Kinto's, with identifiers that the server alone chooses, so that only the listing tells what was made."""
    catalogue = plain("kinto")
    create = catalogue["operations"]["create_record"]
    del create["idempotency"]
    create["subject"] = {"id": "$response.body#/data/id"}
    create["listing"] = "records"
    return written(folder, catalogue)
