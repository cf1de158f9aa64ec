"""What curation writes: the problems, what was dropped, and a manifest from which both can be made again.

    problems.jsonl.zst    autoclave-problem/1 lines, sorted by id
    train.jsonl           those to train on, plain lines
    heldout.jsonl         those to report on, without near duplicates in the other
    dropped.jsonl.zst     what was dropped by which stage, for which reason
    manifest.json         sources with hashes and licences, counts of stages, settings, versions

The same sources and settings make the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_writer, write_atomically
from autoclave.core.json import to_plain
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.candidate_file import compressed_lines
from autoclave.problems.curation.pipeline import StageResult

PROBLEMS, DROPPED, MANIFEST = "problems.jsonl.zst", "dropped.jsonl.zst", "manifest.json"
PARTS = ("train.jsonl", "heldout.jsonl")
"""The names that recipes read."""
FORMAT = "autoclave-curation/1"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What a manifest says of a source.

    Attributes:
        name: what reports call it.
        set: its layout.
        place: file, folder, or name on the hub, as it was given.
        licence: as published with the set.
        files: sha256 (hex) of each file that was read, by its name below `place`.
    """

    name: str
    set: str
    place: str
    licence: str
    files: Mapping[str, str]


def write_training_set(
    out: Path,
    results: Sequence[StageResult],
    sources: Sequence[SourceRecord],
    evaluation_sets: Sequence[SourceRecord],
    settings: Mapping[str, Any],
    version: str,
    heldout: Collection[str] = (),
) -> dict[str, Any]:
    """Write the files into the folder `out`; the manifest, which is written last. `heldout` are ids.

    Only one process at a time may do so.
    """
    out.mkdir(parents=True, exist_ok=True)
    for partial in out.glob(".*.partial"):  # of a process that was killed
        partial.unlink()
    num_problems = _write_problems(out, results[-1].kept, heldout)
    with compressed_lines(out / DROPPED) as write:
        for result in results:
            for dropped in result.dropped():
                write({"stage": result.name, **to_plain(dropped)})
    manifest = {
        "format": FORMAT,
        "name": settings["name"],
        "problems": num_problems,
        "heldout": len(heldout),
        "sha256": {name: digest_of(out / name) for name in (PROBLEMS, DROPPED, *PARTS)},
        "sources": [to_plain(source) for source in sources],
        "evaluation_sets": [to_plain(source) for source in evaluation_sets],
        "stages": [
            {
                "name": result.name,
                "kept": dict(result.num_kept),
                "dropped": to_plain(dict(result.num_dropped)),
                "notes": list(result.notes),
            }
            for result in results
        ],
        "settings": dict(settings),
        "versions": {"autoclave": version, "python": platform.python_version()},
    }
    write_atomically(out / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def digest_of(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_problems(out: Path, candidates: Iterable[Candidate], heldout: Collection[str]) -> int:
    """The problems sorted by id, with only ids and places in memory."""
    with ExitStack() as opened:
        unsorted = opened.enter_context(tempfile.TemporaryFile(dir=out))
        write = opened.enter_context(compressed_lines(out / PROBLEMS))
        parts = [opened.enter_context(atomic_writer(out / name, text=False)) for name in PARTS]
        places: list[tuple[str, int]] = []
        for candidate in candidates:
            places.append((candidate.problem.id, unsorted.tell()))
            unsorted.write(json.dumps(candidate.problem.to_json()).encode() + b"\n")
        for id, place in sorted(places):
            unsorted.seek(place)
            line = unsorted.readline()
            write(json.loads(line))
            parts[id in heldout].write(line)
    return len(places)
