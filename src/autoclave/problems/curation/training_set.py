"""Write the result of curation: the problems, the dropped rows, and a manifest from which both can be reproduced.

    problems.jsonl.zst    autoclave-problem/1 lines, sorted by id
    train.jsonl           training problems, plain lines
    heldout.jsonl         held-out problems, without near duplicates in training
    dropped.jsonl.zst     dropped rows with stage and reason
    manifest.json         sources with hashes and licences, counts of stages, settings, versions

Equal sources and settings make equal bytes.
"""

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
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.pipeline import StageResult, compressed_lines
from autoclave.problems.readers.raw_files import digest_of

PROBLEMS, DROPPED, MANIFEST = "problems.jsonl.zst", "dropped.jsonl.zst", "manifest.json"
PARTS = ("train.jsonl", "heldout.jsonl")
"""The names that recipes read."""
FORMAT = "autoclave-curation/1"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Entry of a source in the manifest.

    Attributes:
        name: its name in reports.
        set: its layout.
        place: file, folder, or name on the hub, as given.
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
    """Write the files into the folder `out`, and return the manifest, which is written last. `heldout` are ids.

    Only one process at a time may write to `out`.
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


def _write_problems(out: Path, candidates: Iterable[ProblemCandidate], heldout: Collection[str]) -> int:
    """Write the problems sorted by id, with only ids and places in memory."""
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
