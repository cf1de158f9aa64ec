"""The curation that settings describe: sources, stages, judge, cache, and what is written at the end."""

import json
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoclave import __version__
from autoclave.compose.host import build_judge
from autoclave.config import BenchmarkConfig, CurateConfig, DifficultyConfig, SourceConfig
from autoclave.core import ConfigError, DataError, IncompleteError, InputError
from autoclave.core.files import alone_with, cache_folder, read_jsonl
from autoclave.core.json import canonical_json, nearest
from autoclave.problems.candidate import ProblemCandidate, SkippedRow
from autoclave.problems.curation.comparing import WithoutContamination, WithoutDuplicates
from autoclave.problems.curation.filters import Selection, enough_tests, fitting_difficulty, selected, short_prompt
from autoclave.problems.curation.pipeline import StageResult, drop_other_folders, run_stages
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache
from autoclave.problems.curation.stage import ReadableSource, Reading, Stage
from autoclave.problems.curation.strength import LEAST_LIMIT_S, Strength
from autoclave.problems.curation.training_set import SourceRecord, write_training_set
from autoclave.problems.curation.verification import Agreement, Flakiness, Verification
from autoclave.problems.readers import LAYOUTS, Layout, raw_files, read_rows
from autoclave.problems.readers.hub import hub_set
from autoclave.problems.readers.raw_files import digest_of
from autoclave.problems.sets import heldout_ids
from autoclave.report.curation import REPORT, write_report

_WORK = "work"
_WORDS = re.compile(r"\w+|[^\w\s]")

Say = Callable[[str], None]


def curate(config: CurateConfig, out: Path, say: Say) -> dict[str, Any]:
    """The manifest of the training set that is written to the folder `out`.

    Raises:
        ConfigError: there is no source, or two have the same name.
        InputError: a source cannot be read, or another process writes to `out`.
        HostError: a library is missing, or programs cannot be run sealed here.
        IncompleteError: the judge failed, and the same call goes on; or a source has no problem, or none is left.
    """
    _require_sources(config)
    sources, evaluation_sets = [
        [open_source(source) for source in part] for part in (config.sources, config.evaluation_sets)
    ]
    with ExitStack() as opened:
        opened.enter_context(
            alone_with(out / _WORK, f"--out {out}: another curation writes there; wait for it, or give another")
        )
        stages = _filters(config)
        if config.evaluation_sets:
            evaluation = _EvaluationSets(config.evaluation_sets, [source for source, _ in evaluation_sets])
            stages.append(WithoutContamination(evaluation, evaluation.identity, config.decontamination))
        programs = None
        if config.verification or config.strength:
            programs = programs_of(config, opened)
            stages += verified(config, programs)
        if config.strength:
            quick = programs_of(with_short_limits(config), opened)
            stages.append(Strength(quick, config.strength.mutants, config.strength.minimum_killed))
        if config.deduplication:
            labels = [source.label for source in config.sources]
            stages.append(WithoutDuplicates(config.deduplication, labels, programs, out / _WORK))
        results = run_stages(Reading([source for source, _ in sources]), stages, out / _WORK, say)
        manifest = write_training_set(
            out,
            results,
            [record for _, record in sources],
            [record for _, record in evaluation_sets],
            _settings(config),
            __version__,
            heldout_ids(results[-1].kept, config.heldout_share, config.seed) if config.heldout_share else (),
        )
        write_report(out / REPORT, manifest, results)
        drop_other_folders(results, out / _WORK)
    _require_problems(results, [source.label for source in config.sources], out / REPORT)
    return manifest


class _EvaluationSets:
    """The problems of evaluation sets that are within their windows, again and again."""

    def __init__(self, configs: Sequence[SourceConfig], sources: Sequence[ReadableSource]) -> None:
        self._sources = sources
        self._selections = [selection_of(config) for config in configs]

    @property
    def identity(self) -> Any:
        """Inputs that their content depends on, as JSON data."""
        selections = [json.loads(canonical_json(selection)) for selection in self._selections]
        return [[source.label, source.identity, *rest] for source, *rest in zip(self._sources, selections, strict=True)]

    def __iter__(self) -> Iterator[ProblemCandidate]:
        for source, selection in zip(self._sources, self._selections, strict=True):
            for row in source.read():
                if isinstance(row, ProblemCandidate) and selection.reason_to_skip(row.problem) is None:
                    yield replace(row, origin=replace(row.origin, set=source.label))


def selection_of(source: SourceConfig) -> Selection:
    """Filter of the problems of a source: its dates and difficulties."""
    return Selection(source.released_from, source.released_before, source.difficulties)


def _require_sources(config: CurateConfig) -> None:
    if not config.sources:
        raise ConfigError("sources: there is none; name a set and where your copy of it is (docs/how-to/curation.md)")
    for part, given in (("sources", config.sources), ("evaluation_sets", config.evaluation_sets)):
        labels = [source.label for source in given]
        for place, label in enumerate(labels):
            if label in labels[:place]:
                raise ConfigError(
                    f"{part}[{place}].name = {label!r}: is used before; give each source a name of its own"
                )


def _require_problems(results: Sequence[StageResult], labels: Sequence[str], report: Path) -> None:
    """Refuse a set that lacks a whole source, or everything; files with the reasons are written by then."""
    read = results[0]
    empty = [label for label in labels if not read.num_kept.get(label)]
    if not empty and any(results[-1].num_kept.values()):
        return
    of = empty or labels
    rows = sum(read.num_kept.get(label, 0) + sum(read.num_dropped.get(label, {}).values()) for label in of)
    dropped = (one for result in results for one in result.dropped() if one.origin.set in of)
    first = next((f"first reason: row {one.origin.row}: {one.reason}: {one.detail}" for one in dropped), "no row")
    fix = "give sources[].path a file with problems and sources[].set its layout" if empty else "relax the settings"
    raise IncompleteError(f"{', '.join(of)}: 0 problems of {rows} rows; {first}. Fix: {fix}; {report} has all reasons")


def _settings(config: CurateConfig | BenchmarkConfig) -> dict[str, Any]:
    """Settings that a result depends on: not how many programs are judged at a time, or where."""
    settings = config.model_dump(mode="json")
    settings["judge"] = {name: settings["judge"][name] for name in _JUDGING}
    return settings


_JUDGING = ("backend", "remote", "time_limit_range", "default_time_limit_s", "profiles", "cpp")


def judge_settings(config: CurateConfig | BenchmarkConfig) -> Any:
    """Settings that verdicts depend on beside problem and program; of servers only the addresses are known."""
    settings = _settings(config)
    return [__version__, platform.python_version(), settings["judge"], settings["sandbox"]]


def _filters(config: CurateConfig) -> list[Stage]:
    selections = {source.label: selection_of(source) for source in config.sources}
    stages: list[Stage] = [selected(selections), enough_tests(config.minimum_tests)]
    if config.prompt_tokens is not None:
        stages.append(short_prompt(config.prompt_tokens, *_tokenizer(config.tokenizer)))
    if config.difficulty:
        rates, digest = _pass_rates(config.difficulty)
        stages.append(fitting_difficulty(rates, digest, config.difficulty.lowest, config.difficulty.highest))
    return stages


def programs_of(config: CurateConfig, opened: ExitStack) -> CandidatePrograms:
    """The judge of the settings, until `opened` closes."""
    judge = opened.enter_context(build_judge(config.judge, config.sandbox))
    kept = cache_folder() / "verdicts.sqlite"
    cache = opened.enter_context(VerdictCache(kept, judge_settings(config)))
    return CandidatePrograms(judge, cache, config.judge.pending_limit)


def with_short_limits(config: CurateConfig) -> CurateConfig:
    """Settings of a judge that takes the time limits of `Strength` as they are. Servers have their own range."""
    low, high = config.judge.time_limit_range
    judge = config.judge.model_copy(update={"time_limit_range": (min(low, LEAST_LIMIT_S), high)})
    return config.model_copy(update={"judge": judge})


def verified(config: CurateConfig, programs: CandidatePrograms) -> list[Stage]:
    stages: list[Stage] = []
    if verification := config.verification:
        unsolved = frozenset(source.label for source in config.sources if not source.needs_solutions)
        if verification.special_judge_share is not None:
            stages.append(Agreement(programs, verification.special_judge_share))
        stages.append(Verification(programs, verification.rule, unsolved))
        if verification.repeats > 1:
            stages.append(Flakiness(programs, verification.rule, verification.repeats))
    return stages


def _tokenizer(name: str) -> tuple[str, Callable[[str], int]]:
    """Name of the tokenizer in fingerprints, and the function that counts tokens."""
    if name == "words":
        return name, lambda text: len(_WORDS.findall(text))
    from tokenizers import Tokenizer

    path = Path(name, "tokenizer.json")
    if not path.is_file():
        raise InputError(f"tokenizer = {name!r}: must be words, or a folder with a tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    return f"{path.parent.name} {digest_of(path)[:16]}", lambda text: len(tokenizer.encode(text).ids)


def _pass_rates(config: DifficultyConfig) -> tuple[dict[str, float], str]:
    path = Path(config.pass_rates)
    rates: dict[str, float] = {}
    for where, line in read_jsonl(path, "difficulty.pass_rates"):
        id, rate = line.get("id"), line.get("pass_rate")
        if not isinstance(id, str) or isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise DataError(f"{where}: must have `id`, a text, and `pass_rate`, a number from 0 to 1")
        rates[id] = float(rate)
    return rates, digest_of(path)


def open_source(source: SourceConfig) -> tuple[ReadableSource, SourceRecord]:
    """Reader of a source, and its entry in a manifest.

    Raises:
        ConfigError: its layout or release is not known.
        InputError: it is not there, or holds nothing that can be read.
        HostError: a library is missing, or the hub cannot be reached.
    """
    layout = _layout(source)
    wanted = layout.releases[source.release] if source.release else ()
    if source.hub:
        found = hub_set(source.hub, source.revision, wanted)
        files = {f"{found.name}:{found.config}:{found.split}": found.revision}
        rows = found.rows
    else:
        raw = raw_files(Path(source.path), wanted)
        files, rows = raw.digests(), raw.rows
    record = SourceRecord(source.label, source.set, source.path or source.hub, source.licence or layout.licence, files)

    def read() -> Iterator[ProblemCandidate | SkippedRow]:
        for row in read_rows(source.set, source.label, rows()):
            if source.profile and isinstance(row, ProblemCandidate):
                row = replace(row, problem=replace(row.problem, profile=source.profile))
            yield row

    profile = {"profile": source.profile} if source.profile else {}
    return ReadableSource(source.label, {"set": source.set, "files": files, **profile}, read), record


def _layout(source: SourceConfig) -> Layout:
    layout = LAYOUTS.get(source.set)
    if layout is None:
        raise ConfigError(f"set = {source.set!r}: {nearest(source.set, list(LAYOUTS))}")
    if source.release and source.release not in layout.releases:
        known = nearest(source.release, list(layout.releases)) if layout.releases else "this set has no releases"
        raise ConfigError(f"release = {source.release!r} of {source.set}: {known}")
    return layout
