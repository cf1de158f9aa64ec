"""Run stages one after the other, each into a folder of its own that is complete or absent.

    work/00-read-<fingerprint>/       kept.jsonl.zst  dropped.jsonl.zst  stage.json
    work/01-minimum_tests-<...>/      ...

The fingerprint covers the settings of the stage and of all stages before, with the sources. A stage whose folder exists
is not run again: after kill -9 the work continues with the interrupted stage (its verdicts are in the cache), and after
a change of settings with the first affected stage.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_folder, atomic_writer, read_jsonl, write_atomically
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.stage import Dropped, Stage

_FORMAT = 1
"""Part of all fingerprints: raised when the result of a stage changes with the same settings."""
_KEPT, _DROPPED, _SUMMARY = "kept.jsonl.zst", "dropped.jsonl.zst", "stage.json"

Notify = Callable[[str], None]


@contextmanager
def compressed_lines(path: Path) -> Generator[Callable[[dict[str, Any]], object]]:
    """Yield a function that writes an object as a line of a zstd file, which appears when the block succeeds.

    Equal objects make equal bytes.
    """
    import zstandard

    packing = zstandard.ZstdCompressor(level=6)
    with atomic_writer(path, text=False) as file, packing.stream_writer(file, closefd=False) as packed:
        yield lambda value: packed.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """Candidates in a file, iterable any number of times, one in memory at a time."""

    path: Path

    def __iter__(self) -> Iterator[ProblemCandidate]:
        for where, value in read_jsonl(self.path):
            yield ProblemCandidate.from_json(value, where)


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage. `num_kept` is by source; `num_dropped` by source, then by reason."""

    name: str
    folder: Path
    num_kept: Mapping[str, int]
    num_dropped: Mapping[str, Mapping[str, int]]
    notes: Sequence[str]

    @property
    def kept(self) -> CandidateFile:
        return CandidateFile(self.folder / _KEPT)

    def dropped(self) -> Iterator[Dropped]:
        """Yield the dropped rows, in the order in which they were dropped."""
        for where, value in read_jsonl(self.folder / _DROPPED):
            yield from_plain(Dropped, value, where)

    @property
    def reasons(self) -> Counter[str]:
        return sum(map(Counter[str], self.num_dropped.values()), Counter[str]())


def run_stages(read: Stage, stages: Sequence[Stage], work: Path, notify: Notify = lambda _: None) -> list[StageResult]:
    """Return the results of `read`, the first stage, and of all others, with those of earlier calls.

    Raises IncompleteError: a stage could not decide on all candidates; the same call continues there.
    """
    results: list[StageResult] = []
    fingerprint = str(_FORMAT)
    candidates: Iterable[ProblemCandidate] = ()
    for number, stage in enumerate([read, *stages]):
        identity = [fingerprint, stage.name, dict(stage.settings)]
        fingerprint = hashlib.sha256(canonical_json(identity)).hexdigest()
        folder = work / f"{number:02d}-{stage.name}-{fingerprint[:16]}"
        notify(f"{stage.name} ...")
        if not folder.exists():
            _run(stage, candidates, folder)
        results.append(_result(stage.name, folder))
        candidates = results[-1].kept
        notify(_summary(results[-1]))
    return results


def drop_other_folders(results: Sequence[StageResult], work: Path) -> None:
    known = {result.folder for result in results}
    for folder in work.iterdir():
        if folder not in known and folder.is_dir():
            shutil.rmtree(folder)


def _run(stage: Stage, candidates: Iterable[ProblemCandidate], folder: Path) -> None:
    kept: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {}
    with atomic_folder(folder) as partial:
        with compressed_lines(partial / _KEPT) as keep, compressed_lines(partial / _DROPPED) as drop:
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


def _summary(result: StageResult) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in result.reasons.most_common())
    return f"{result.name}: {sum(result.num_kept.values())} kept" + (f"; dropped: {reasons}" if reasons else "")
