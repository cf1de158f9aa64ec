"""A benchmark that settings describe: its problems, the model that answers, the judge, and what is written at the end.

Free of tensor libraries unless the model is a folder.
"""

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from tqdm import tqdm

from autoclave.compose.curation import judge_settings, open_source, selection_of
from autoclave.compose.host import build_judge
from autoclave.config import BenchmarkConfig, JudgeConfig, RatingConfig
from autoclave.config.recipe import find_recipe
from autoclave.core import AlignmentSample, ConfigError, IncompleteError, InputError, Problem
from autoclave.core.files import cache_folder, digest_of_folder, write_atomically
from autoclave.core.futures import chained
from autoclave.core.json import nearest
from autoclave.core.sqlite_files import KeptTexts
from autoclave.evaluation.benchmark_result import REPORT, SAMPLES, BenchmarkResult, GradedResponse
from autoclave.evaluation.endpoint import Endpoint
from autoclave.evaluation.questions import Question, problem_questions, trace_questions
from autoclave.evaluation.responses import (
    CachedResponses,
    RecordedResponses,
    ResponseRequest,
    ResponseSource,
    read_responses,
)
from autoclave.evaluation.standings import contest_of, rating_of, read_contests, read_histogram, read_problem_ids
from autoclave.judge import Judge
from autoclave.problems.candidate import ProblemCandidate, SkippedRow
from autoclave.problems.curation.lazy_programs import accepting_lazy_programs
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache
from autoclave.problems.readers import LAYOUTS
from autoclave.report.evaluation import result_page
from autoclave.rollout import SamplingParameters

Say = Callable[[str], None]
_DEFINITIONS = files("autoclave.evaluation") / "definitions"
_ADDRESS = ("http://", "https://")
_MOST_LISTED = 5


def definition_names() -> list[str]:
    return sorted(path.name.removesuffix(".yaml") for path in _DEFINITIONS.iterdir() if path.name.endswith(".yaml"))


def definition_of(name: str) -> Path:
    """The file that defines a benchmark: one of ours by its name, or a file of the user's.

    Raises ConfigError: there is no such benchmark.
    """
    if name in definition_names():
        return Path(str(_DEFINITIONS / f"{name}.yaml"))
    if name.endswith((".yaml", ".yml")):
        return find_recipe(name)
    raise ConfigError(f"--benchmark {name}: {nearest(name, definition_names())}; or give a YAML file of your own")


def evaluate_benchmark(
    config: BenchmarkConfig,
    model: str,
    *,
    out: Path | None = None,
    partial: bool = False,
    fresh: bool = False,
    say: Say = lambda text: None,
    key: Callable[[], str] | None = None,
) -> BenchmarkResult:
    """Ask `model` the questions of a benchmark and grade its responses.

    Args:
        model: the folder of a model, the address of a server (`http...`), or a file of responses.
        out: folder for the result and its page.
        partial: problems to which a file has no response are left out, and counted; else they are an error.
        fresh: responses of before are not used.
        say: hears what goes on.
        key: gives the key to a server, for each request; by default it is in the environment, where settings say so.

    Raises:
        ConfigError, InputError: something given cannot be used.
        HostError: this host lacks what is needed.
        FaultError: the model or the judge failed; what was sampled is in the cache, and the same call goes on.
    """
    _require_model(model)
    if out:
        _require_folder(out)
    rate = _rater(config.rating) if config.rating else None
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        say(text)

    problems = _problems(config, note)
    with ExitStack() as opened:
        judge = opened.enter_context(build_judge(_judge_settings(config), config.sandbox))
        questions = _questions(config, problems, judge, note)
        ids = [question.info.id for question in questions]
        source, name = _source(config, model, ids, opened, say, fresh=fresh, key=key)
        count = _num_samples(config, source, ids, model, partial=partial)
        samples = _graded(config, questions, count, source)
        account = source.account()
        lazy = _accepting_lazy_programs(config, problems, judge, note) if config.lazy_programs else None
    fewest = min(count(id) for id in ids if count(id))
    if missing := [k for k in config.k if k > fewest]:
        note(f"pass@k for k = {missing} is left out: there are problems with {fewest} responses")
    result = BenchmarkResult(
        config.name,
        name,
        tuple(question.info for question in questions),
        tuple(samples),
        config.model_dump(mode="json"),
        tuple(k for k in config.k if k <= fewest) or (1,),
        config.tables,
        config.score,
        account,
        lazy=lazy,
        notes=tuple(notes),
    )
    if rate:
        result = replace(result, rating=rate(result))
    if out:
        write_result(result, out)
    return result


def _graded(
    config: BenchmarkConfig, questions: Sequence[Question], count: Callable[[str], int], source: ResponseSource
) -> list[GradedResponse]:
    """Return graded responses to all questions, by question and sample in order, each graded as it completes."""
    parameters = SamplingParameters(config.temperature, config.top_p, config.max_new_tokens, config.stops)
    pairs = [
        (question, ResponseRequest(question.info.id, question.messages, config.chat, parameters, sample))
        for question in questions
        for sample in range(count(question.info.id))
    ]
    responses = source.respond([request for _, request in pairs])
    grades = [chained(response, question.grade) for (question, _), response in zip(pairs, responses, strict=True)]
    found: list[GradedResponse] = []
    rows = zip(pairs, responses, grades, strict=True)
    for (_, request), given, graded in tqdm(rows, config.name, len(pairs), unit="response", disable=None):
        response, grade = given.result(), graded.result().result()
        rest = {"response": response.text, "finish": response.finish, "tokens": response.tokens}
        found.append(GradedResponse(request.question_id, request.sample, **asdict(grade), **rest))
    return found


def _judge_settings(config: BenchmarkConfig) -> JudgeConfig:
    """Settings of a judge that takes the time limit of the benchmark as it is."""
    limit, (low, high) = config.time_limit_s, config.judge.time_limit_range
    if limit is None or config.judge.backend == "remote":
        return config.judge
    return config.judge.model_copy(update={"time_limit_range": (min(low, limit), max(high, limit))})


def _accepting_lazy_programs(
    config: BenchmarkConfig, found: Sequence[ProblemCandidate], judge: Judge, say: Say
) -> dict[str, list[str]] | None:
    """Problems whose tests accept programs that know nothing, with what those do; None where no program is judged."""
    if config.asks != "problems":
        return None
    judged = config.model_copy(update={"judge": _judge_settings(config)})
    accepting: dict[str, list[str]] = {}
    with VerdictCache(cache_folder() / "verdicts.sqlite", judge_settings(judged)) as cache:
        programs = CandidatePrograms(judge, cache, config.judge.pending_limit)
        try:
            accepting.update((problem.id, names) for problem, names in accepting_lazy_programs(programs, found))
        except IncompleteError as error:
            say(f"problems that accept a lazy program are not all known: {error}")
    if accepting:
        listed = "; ".join(f"{id} ({names[0]})" for id, names in list(accepting.items())[:_MOST_LISTED])
        more = ", ..." if len(accepting) > _MOST_LISTED else ""
        say(f"{len(accepting)} of {len(found)} problems accept a lazy program, which knows nothing: {listed}{more}")
    return accepting


def write_result(result: BenchmarkResult, out: Path) -> None:
    result.save(out)
    write_atomically(out / REPORT, result_page(result))


def _require_model(model: str) -> None:
    """Find out early whether there is anything that could answer."""
    if not model.startswith(_ADDRESS) and not Path(model).exists():
        raise InputError(f"model {model}: must be the folder of a model, an address (http...), or a file of responses")


def _require_folder(out: Path) -> None:
    """Make the folder for the result early."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / SAMPLES).touch()
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror})") from None


def _problems(config: BenchmarkConfig, say: Say) -> list[ProblemCandidate]:
    if config.source is None:
        raise ConfigError(
            "source: there is none; say which set this is and where your copy is: source.set=... --data PATH"
        )
    wanted = config.source
    if config.asks == "trace_inference" and f"{wanted.set}_program" in LAYOUTS:  # a set that asks what a call returns
        wanted = wanted.model_copy(update={"set": f"{wanted.set}_program"})
    source, record = open_source(wanted)
    rows = list(source.read())
    unread = [row for row in rows if isinstance(row, SkippedRow)]
    if unread:
        reasons = ", ".join(sorted({row.reason for row in unread}))
        say(
            f"{len(unread)} of {len(rows)} rows of {record.place} are no problems ({reasons}); {unread[0].row}: "
            f"{unread[0].detail}"
        )
    found = [row for row in rows if isinstance(row, ProblemCandidate)]
    if config.rating and config.rating.problem_ids:
        found = _named(found, len(rows), config.rating.problem_ids)
    selection = selection_of(config.source)
    found = [row for row in found if selection.reason_to_skip(row.problem) is None]
    found = [row for row in found if not config.tags or set(config.tags) & set(row.problem.tags)]
    changes: dict[str, Any] = {"profile": config.profile, "time_limit_s": config.time_limit_s}
    changes = {name: value for name, value in changes.items() if value}
    found = [replace(row, problem=replace(row.problem, **changes)) for row in found]
    if not found:
        raise InputError(f"source: none of the {len(rows)} rows of {record.place} is a problem that is asked for")
    return _pinned(_distinct(found), config.limit)


def _distinct(found: Sequence[ProblemCandidate]) -> list[ProblemCandidate]:
    """The same problems; ids that occur again get a number."""
    seen: dict[str, int] = {}
    distinct: list[ProblemCandidate] = []
    for row in found:
        id = row.problem.id
        seen[id] = seen.get(id, 0) + 1
        distinct.append(row if seen[id] == 1 else replace(row, problem=replace(row.problem, id=f"{id}#{seen[id]}")))
    return distinct


def _named(found: Sequence[ProblemCandidate], num_rows: int, path: str) -> list[ProblemCandidate]:
    """Problems by the ids of a list, in its order."""
    ids = read_problem_ids(Path(path))
    if not len(ids) == len(found) == num_rows:
        raise InputError(
            f"rating.problem_ids = {path!r}: has {len(ids)} ids for {len(found)} problems of {num_rows} rows"
        )
    return [
        replace(row, problem=replace(row.problem, id="codeforces/" + "/".join(contest_of(id) or (id,))))
        for row, id in zip(found, ids, strict=True)
    ]


def _pinned(found: list[ProblemCandidate], limit: int) -> list[ProblemCandidate]:
    """So many of them, the same for every model, in their order."""
    if not limit or limit >= len(found):
        return found
    chosen = sorted(random.Random("pinned").sample(range(len(found)), limit))
    return [found[place] for place in chosen]


def _questions(config: BenchmarkConfig, found: Sequence[ProblemCandidate], judge: Judge, say: Say) -> list[Question]:
    titles = {row.problem.id: row.origin.title for row in found}
    problems = [row.problem for row in found]
    if config.asks == "trace_inference":
        alignment_samples = _alignment_samples(config, problems, judge)
        say(f"{len(alignment_samples)} runs of solutions of {len(problems)} problems are asked")
        return trace_questions(alignment_samples, config)
    questions = problem_questions(problems, config, judge)
    return [replace(each, info=replace(each.info, title=titles[each.info.id])) for each in questions]


def _alignment_samples(
    config: BenchmarkConfig, problems: Sequence[Problem], judge: Judge
) -> list[tuple[Problem, AlignmentSample]]:
    """Runs of official solutions that have an output and variables to ask for."""
    from autoclave.compose.alignment import complete_alignment_sample, solutions_of, trace_of
    from autoclave.config import AlignmentConfig

    settings = AlignmentConfig()
    by_id = {problem.id: problem for problem in problems}
    runs = solutions_of(problems, settings, config.runs_per_problem, 0)
    traces: list[tuple[Any, Future[Any]]] = [(run, trace_of(judge, run)) for run in runs]
    alignment_samples = [
        alignment_sample
        for run, trace in traces
        if (alignment_sample := complete_alignment_sample(run, trace, settings, with_lists=True))
    ]
    if not alignment_samples:
        raise InputError(
            f"asks = trace_inference: no solution of these {len(problems)} problems runs on inputs (tests of kind "
            "stdin or call) with variables to ask for"
        )
    return [(by_id[each.problem_id], each) for each in alignment_samples]


def _source(
    config: BenchmarkConfig,
    model: str,
    ids: Sequence[str],
    opened: ExitStack,
    say: Say,
    *,
    fresh: bool,
    key: Callable[[], str] | None,
) -> tuple[ResponseSource, str]:
    """Source of responses, and the name of the model."""
    path = Path(model)
    if path.is_file():
        return read_responses(path, ids), path.name
    kept = KeptTexts(cache_folder() / "responses.sqlite", "responses")
    cache = opened.enter_context(kept)  # open until all answers are in
    if model.startswith(_ADDRESS):
        endpoint = Endpoint(model, config.endpoint, key or key_of_environment(config.endpoint.api_key_variable))
        source: ResponseSource = opened.enter_context(closing(endpoint))
        name = endpoint.model
    else:
        from autoclave.compose.folder_model import FolderModel

        source = opened.enter_context(closing(FolderModel(config, path, digest_of_folder(path), opened, say)))
        name = path.name if path.name != "model" else str(path)
    return CachedResponses(source, cache, fresh=fresh), name


def key_of_environment(variable: str) -> Callable[[], str]:
    """Return the function that reads the key from this variable; None without one."""
    if variable and variable not in os.environ:
        raise ConfigError(f"endpoint.api_key_variable = {variable!r}: is not set in the environment")
    return lambda: os.environ[variable] if variable else ""


def _num_samples(
    config: BenchmarkConfig, source: ResponseSource, ids: Sequence[str], model: str, *, partial: bool
) -> Callable[[str], int]:
    """Number of responses to each question."""
    if not isinstance(source, RecordedResponses):
        return lambda id: config.samples
    missing = [id for id in ids if not source.num_samples(id)]
    if missing and not partial:
        listed = ", ".join(missing[:_MOST_LISTED]) + (" ..." if missing[_MOST_LISTED:] else "")
        raise InputError(
            f"{model}: has no response to {len(missing)} of {len(ids)} problems ({listed}); add them, or leave these "
            "problems out with --partial"
        )
    return source.num_samples


def _rater(config: RatingConfig) -> Callable[[BenchmarkResult], dict[str, Any]]:
    """Return the function that rates a result; the files are read, and checked, before anything is asked."""
    contests, histogram = read_contests(Path(config.standings)), read_histogram(Path(config.histogram))
    return lambda result: rating_of(
        result, contests, histogram, attempts=config.attempts, expectation=config.expectation
    )
