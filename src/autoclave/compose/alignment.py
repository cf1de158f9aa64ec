"""Alignment of a run: where its alignment samples come from, and how they are asked and measured."""

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import TypeVar, cast

from transformers import PreTrainedTokenizerBase

from autoclave.compose.tasks import AnyTask, grader_of
from autoclave.config import AlignmentConfig, TrainConfig
from autoclave.core import AlignmentSample, CallTests, ConfigError, Problem, Program, StdinTests, TaskItem, Trace
from autoclave.core.futures import completed
from autoclave.environments import Grader
from autoclave.judge import Judge, JudgeJob
from autoclave.judge.traces import is_traceable
from autoclave.models import encode_prompt
from autoclave.problems import DemonstratedProgram, Demonstration, ProblemSets
from autoclave.rollout import by_last_turn
from autoclave.tasks import (
    CodeGeneration,
    ExecutionSemantics,
    OutputPrediction,
    TestOutputPrediction,
    TraceInference,
)
from autoclave.tasks.alignment_samples import is_short_input
from autoclave.tasks.execution_semantics import answer_to
from autoclave.training.alignment.alignment import Alignment, AlignmentSampler, NoAlignment, alignment_sample_from
from autoclave.training.alignment.candidates import Candidate
from autoclave.training.learned import ShuffledItems

T = TypeVar("T")

RUNS_PER_PROGRAM = 8
"""Most tests on which a demonstrated program becomes an alignment sample."""
HELDOUT_RUNS = 4
"""Most tests on which the solution of a held-out problem becomes an item."""


def build_alignment(
    config: TrainConfig,
    task: AnyTask,
    judge: Judge,
    tokenizer: PreTrainedTokenizerBase,
    programs: ShuffledItems,
    problems: Sequence[Problem],
    *,
    context: int | None,
) -> Alignment | NoAlignment:
    """The alignment samples of a run that learns from `programs`, made by `judge`; `context` are the tokens of the
    policy's.

    Raises ConfigError: no problem can have one.
    """
    settings = config.alignment
    if settings is None or not isinstance(task, CodeGeneration):
        return NoAlignment(programs)
    room = None if context is None else context - (settings.max_new_tokens or config.longest_trained)
    alignment_sampler = AlignmentSampler(
        item_of=_semantics(settings).item,
        objection=partial(objection, tokenizer, room),
        program_of=task.program_of,
        trace=partial(trace_of, judge),
        references=lambda: _references(problems, settings, config.seed),
    )
    if settings.share and not any(map(is_traceable, problems)):
        raise ConfigError(
            "alignment: no training problem runs a Python program on inputs (tests.kind stdin or call), so there would "
            "be no alignment sample; remove the block, or add such problems"
        )
    parts = config.minibatches if config.schedule.learns_in_parts else 1
    return Alignment(settings, programs, alignment_sampler, seed=config.seed, parts=parts)


def grader_of_run(config: TrainConfig, task: AnyTask) -> Grader:
    """The grader of items of `task`, and of alignment samples if there are any."""
    settings = config.alignment
    if settings is None:
        return grader_of(task)
    graders: Mapping[str, Grader] = {task.name: grader_of(task)} | {
        each.name: by_last_turn(each.reward) for each in (_semantics(settings), *_evaluated(settings))
    }
    return lambda rollout: graders[rollout.item.task](rollout)


def heldout_items(
    config: TrainConfig,
    judge: Judge,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    context: int | None,
) -> dict[str, list[TaskItem]]:
    """By task, what alignment is measured on: of solutions of held-out problems, the same for every run and seed.

    A task for which there is no item is left out.
    """
    settings = config.alignment
    if settings is None or not settings.evaluation_items:
        return {}
    room = None if context is None else context - config.longest_evaluated
    found = solutions_of(problems, settings, HELDOUT_RUNS, 0)
    random.Random("pinned lessons").shuffle(found)
    traces = [(candidate, trace_of(judge, candidate)) for candidate in found[: 4 * settings.evaluation_items]]
    alignment_samples = [
        alignment_sample
        for candidate, future in traces
        if (alignment_sample := complete_alignment_sample(candidate, future, settings))
    ]
    by_id = {problem.id: problem for problem in problems}
    semantics, (inference, prediction, right_output) = _semantics(settings), _evaluated(settings)
    outputs = [right_output.item_of(by_id[each.problem_id], each.test) for each in alignment_samples]
    items: dict[str, list[TaskItem | None]] = {
        semantics.name: [semantics.item(each) for each in alignment_samples],
        inference.name: [inference.item(each) for each in alignment_samples],
        prediction.name: [prediction.item(each) for each in alignment_samples],
        right_output.name: outputs,
    }
    asked = {
        name: [item for item in each if item and not objection(tokenizer, room, item)][: settings.evaluation_items]
        for name, each in items.items()
    }
    return {name: each for name, each in asked.items() if each}


def alignment_demonstrations(
    config: TrainConfig, problems: ProblemSets, judge: Judge, count: int
) -> list[Demonstration]:
    """Answers to `count` alignment samples, or as many as there are, for the warm start to imitate.

    They are of programs like the demonstrated ones, on a few tests each, of all sizes that alignment samples ever have.
    Where alignment samples ask for variables they are in turn such alignment samples, and the form of what evaluation
    asks: both variables and output, and the output alone. What a program computes on the way is written first, where it
    is known. Answers are those to the program as the teacher reads it, and right where that is what is written.

    Raises ConfigError: there are no programs.
    """
    settings = config.alignment
    if settings is None:
        return []
    is_whole = settings.asks == "variables"
    tasks = cycle((_semantics(settings), *(_evaluated(settings)[:2] if is_whole else ())))
    traced = (
        (each.program, working, candidate, trace_of(judge, candidate))
        for number, each in enumerate(islice(problems.demonstrated_programs(), 8 * count))
        for candidate, working in _runs_of(each, number, settings)
    )
    found: list[Demonstration] = []
    for program, working, candidate, future in _with_later_ones_begun(traced):
        if len(found) == count:
            break
        alignment_sample = (complete_alignment_sample if is_whole else _alignment_sample)(candidate, future, settings)
        if alignment_sample:
            item = next(tasks).item(replace(alignment_sample, program=program))
            response = "\n".join([*working, answer_to(alignment_sample, item.task)])
            found.append(
                Demonstration(item.id, tuple(map(dict, item.messages)), response, candidate.program == program)
            )
    return found


def _with_later_ones_begun(works: Iterator[T]) -> Iterator[T]:
    """`works`, each of which begins when it is drawn, with the next 256 on their way while one is waited for."""
    begun = deque(islice(works, 256))
    while begun:
        yield begun.popleft()
        begun.extend(islice(works, 1))


def _runs_of(
    demonstrated: DemonstratedProgram, number: int, settings: AlignmentConfig
) -> Iterator[tuple[Candidate, Sequence[str]]]:
    """Runs of a program, as it is read, on tests that are drawn, with what it computes on the way; none where there is
    no alignment sample.
    """
    problem, workings = demonstrated.problem, demonstrated.workings
    if len(demonstrated.program) > settings.limits.program_characters:
        return
    tests = [test for test in _short_tests(problem, settings) if not workings or _is_told(workings[test], settings)]
    for test in random.Random(f"{number} {problem.id}").sample(tests, min(RUNS_PER_PROGRAM, len(tests))):
        yield Candidate(problem, demonstrated.read_on(test), test, 0), workings[test] if workings else []


def _is_told(working: Sequence[str], settings: AlignmentConfig) -> bool:
    """Return whether every value on the way is as short as one that is asked, and one is of primitive type."""
    values = [line.partition(": ")[2] for line in working]
    is_short = all(len(value) <= settings.limits.value_characters for value in values)
    return is_short and not all(value.startswith(("[", "{", "(")) for value in values)


def trace_of(judge: Judge, candidate: Candidate) -> Future[Trace]:
    problem = candidate.problem
    return judge.trace(JudgeJob(problem, Program(candidate.program, problem.language), problem.id), candidate.test)


def solutions_of(problems: Sequence[Problem], settings: AlignmentConfig, tests: int, seed: int) -> list[Candidate]:
    """The first solution of each problem that can be traced, on so many tests that are drawn of those short enough."""
    found: list[Candidate] = []
    for problem in problems:
        known = _short_tests(problem, settings) if problem.solutions else []
        drawn = random.Random(f"{seed} {problem.id}").sample(known, min(tests, len(known)))
        found += [Candidate(problem, problem.solutions[0], test, 0) for test in drawn]
    return found


def _references(problems: Sequence[Problem], settings: AlignmentConfig, seed: int) -> list[Candidate]:
    """Solutions of training problems, in an order that says nothing: not all of them may have room."""
    found = solutions_of(problems, settings, settings.tests_per_program, seed)
    random.Random(f"{seed} references").shuffle(found)
    return found


def _short_tests(problem: Problem, settings: AlignmentConfig) -> list[int]:
    """The tests that alignment samples can be made of; none where programs are not traced."""
    if not is_traceable(problem) or not isinstance(problem.tests, StdinTests | CallTests):
        return []
    longest = settings.limits.input_characters
    return [number for number in range(len(problem.tests.cases)) if is_short_input(problem, number, longest)]


def task_limits(config: TrainConfig) -> dict[str, int]:
    """By task, most tokens of a response where it may have fewer than a program."""
    limit = config.alignment.max_new_tokens if config.alignment else None
    return {ExecutionSemantics.name: limit} if limit else {}


def term_weights(config: TrainConfig) -> dict[str, float]:
    """By task, the factor on its term of the objective."""
    return {ExecutionSemantics.name: config.alignment.weight} if config.alignment else {}


def _alignment_sample(candidate: Candidate, future: Future[Trace], settings: AlignmentConfig) -> AlignmentSample | None:
    """The alignment sample in the trace of a solution; None if there is none."""
    found = alignment_sample_from(candidate, future, settings, "reference")
    return found if isinstance(found, AlignmentSample) else None


def complete_alignment_sample(
    candidate: Candidate, future: Future[Trace], settings: AlignmentConfig, *, with_lists: bool = False
) -> AlignmentSample | None:
    """The same with variables, lists among them if asked for, and result; None unless it has both."""
    of_output = _alignment_sample(candidate, future, settings.model_copy(update={"asks": "output"}))
    if with_lists and of_output:
        trace = future.result()
        future = completed(replace(trace, variables=trace.variables | trace.lists))
    of_variables = _alignment_sample(candidate, future, settings.model_copy(update={"asks": "variables"}))
    return replace(of_variables, result=of_output.result) if of_variables and of_output else None


def _semantics(settings: AlignmentConfig) -> ExecutionSemantics:
    return ExecutionSemantics(settings.template, float_tolerance=settings.float_tolerance)


def _evaluated(settings: AlignmentConfig) -> tuple[TraceInference, OutputPrediction, TestOutputPrediction]:
    tolerance = settings.float_tolerance
    return (
        TraceInference(settings.template, float_tolerance=tolerance),
        OutputPrediction(settings.template, float_tolerance=tolerance),
        TestOutputPrediction(settings.template, float_tolerance=tolerance),
    )


def objection(tokenizer: PreTrainedTokenizerBase, room: int | None, item: TaskItem) -> str | None:
    """Objection to an item: its prompt is too long, or holds what the tokenizer takes for the end of one."""
    text = "".join(message["content"] for message in item.messages)
    added = cast("dict[str, int]", tokenizer.get_added_vocab())  # pyright: ignore[reportCallIssue, reportOptionalCall]
    control = {*tokenizer.all_special_tokens, *added}
    if any(token in text for token in control if token.strip()):
        return "special_token"
    if room is not None and len(encode_prompt(tokenizer, item.messages)) > room:
        return "prompt_too_long"
    return None
