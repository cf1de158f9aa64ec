"""Run stages one after the other, each into a folder of its own that is there whole or not at all.

    work/00-read-<fingerprint>/       kept.jsonl.zst  dropped.jsonl.zst  stage.json
    work/01-minimum_tests-<...>/      ...

The fingerprint stands for the stage's settings and all that came before it, the sources included. A stage whose folder
is there is not run again: after kill -9 the work goes on with the stage that was under way (what it judged is in the
cache), and after a change of settings with the first stage that they concern.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_folder, read_jsonl, write_atomically
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.candidate_file import CandidateFile, compressed_lines
from autoclave.problems.curation.stage import Dropped, Stage

_FORMAT = 1
"""Part of all fingerprints: raised when a stage does something else with the same settings."""
_KEPT, _DROPPED, _SUMMARY = "kept.jsonl.zst", "dropped.jsonl.zst", "stage.json"

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage did. `num_kept` by source; `num_dropped` by source, then by reason."""

    name: str
    folder: Path
    num_kept: Mapping[str, int]
    num_dropped: Mapping[str, Mapping[str, int]]
    notes: Sequence[str]

    @property
    def kept(self) -> CandidateFile:
        """The candidates that are left."""
        return CandidateFile(self.folder / _KEPT)

    def dropped(self) -> Iterator[Dropped]:
        """What was dropped, in the order in which it was."""
        for where, value in read_jsonl(self.folder / _DROPPED):
            yield from_plain(Dropped, value, where)

    @property
    def reasons(self) -> Counter[str]:
        """How many were dropped for which reason."""
        total: Counter[str] = Counter()
        for reasons in self.num_dropped.values():
            total.update(reasons)
        return total


def run_stages(read: Stage, stages: Sequence[Stage], work: Path, notify: Notify = lambda _: None) -> list[StageResult]:
    """The results of `read`, which makes candidates of nothing, and of all stages, those included that ran before.

    Raises:
        IncompleteError: a stage could not decide on all candidates; the same call goes on there.
    """
    results: list[StageResult] = []
    fingerprint = str(_FORMAT)
    candidates: Iterable[Candidate] = ()
    for number, stage in enumerate([read, *stages]):
        fingerprint = _fingerprint(fingerprint, stage)
        folder = work / f"{number:02d}-{stage.name}-{fingerprint[:16]}"
        notify(f"{stage.name} ...")
        if not folder.exists():
            _run(stage, candidates, folder)
        results.append(_result(stage.name, folder))
        candidates = results[-1].kept
        notify(_told(results[-1]))
    return results


def drop_other_folders(results: Sequence[StageResult], work: Path) -> None:
    """Remove what stages with other settings left behind."""
    known = {result.folder for result in results}
    for folder in work.iterdir():
        if folder not in known and folder.is_dir():
            shutil.rmtree(folder)


def _fingerprint(before: str, stage: Stage) -> str:
    return hashlib.sha256(canonical_json([before, stage.name, dict(stage.settings)])).hexdigest()


def _run(stage: Stage, candidates: Iterable[Candidate], folder: Path) -> None:
    kept: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {}
    with atomic_folder(folder) as partial:
        with (
            compressed_lines(partial / _KEPT) as keep,
            compressed_lines(partial / _DROPPED) as drop,
        ):
            for result in stage.run(candidates):
                if isinstance(result, Dropped):
                    dropped.setdefault(result.origin.set, Counter())[result.reason] += 1
                    drop(to_plain(result))
                else:
                    kept[result.origin.set] += 1
                    keep(result.to_json())
        summary = {
            "kept": dict(sorted(kept.items())),
            "dropped": {name: dict(sorted(dropped[name].items())) for name in sorted(dropped)},
            "notes": list(stage.notes),
        }
        write_atomically(partial / _SUMMARY, json.dumps(summary, indent=1) + "\n")


def _result(name: str, folder: Path) -> StageResult:
    summary: dict[str, Any] = json.loads((folder / _SUMMARY).read_text("utf-8"))
    return StageResult(name, folder, summary["kept"], summary["dropped"], summary["notes"])


def _told(result: StageResult) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in result.reasons.most_common())
    return f"{result.name}: {sum(result.num_kept.values())} kept" + (f"; dropped: {reasons}" if reasons else "")
