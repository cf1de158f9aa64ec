"""The programs that a model writes for sub-tasks, what they compute, and the tokens at which that is read.

What does not count is counted: each step adds to a `Counter` why sub-tasks, or variables, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from autoclave.compose.alignment import objection, trace_of
from autoclave.core import Completion, JudgeFault, Trace, TraceStatus
from autoclave.evaluation.probing.places import last_occurrences, shared_names, token_at
from autoclave.evaluation.probing.subtasks import SubTask, leaks
from autoclave.evaluation.probing.targets import number_of
from autoclave.judge import Judge
from autoclave.models import encode_prompt
from autoclave.rollout import Request, Sampler, SamplingParameters
from autoclave.tasks import CodeGeneration
from autoclave.training.alignment.candidates import Candidate

PROBING = 3
"""Third of the five numbers of the seeds of probing, so that they differ from those of training and evaluation."""
_TRACED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Run:
    """A program that a model wrote for a sub-task and that ended normally, with the numbers that it left behind.

    `place` is that of the program in the text of the response, `numbers` are by the names of the trace.
    """

    subtask: SubTask
    completion: Completion
    place: tuple[int, int]
    numbers: Mapping[str, float]

    @property
    def program(self) -> str:
        return self.completion.text[slice(*self.place)]


@dataclass(frozen=True, slots=True)
class Reading:
    """Places at which the numbers of a run are read: for each the index of a token of the response, and what it
    held.
    """

    run: Run
    tokens: tuple[int, ...]
    values: tuple[float, ...]


def sample(
    subtasks: Sequence[SubTask],
    task: CodeGeneration,
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerBase,
    parameters: SamplingParameters,
    seed: int,
    room: int | None,
    left_out: Counter[str],
) -> list[tuple[SubTask, Completion]]:
    """A response to each sub-task whose prompt is of at most `room` tokens."""
    asked: list[SubTask] = []
    requests: list[Request] = []
    for index, subtask in enumerate(subtasks):
        item = task.item(subtask.problem)
        if reason := objection(tokenizer, room, item):
            left_out[reason] += 1
            continue
        asked.append(subtask)
        requests.append(Request(encode_prompt(tokenizer, item.messages), parameters, (seed, 0, PROBING, index, 1)))
    completions = [future.result() for future in sampler.submit(requests)]
    return list(zip(asked, completions, strict=True))


def run_programs(
    answered: Sequence[tuple[SubTask, Completion]], task: CodeGeneration, judge: Judge, left_out: Counter[str]
) -> Iterator[Run]:
    """The programs that end normally on the example of their sub-task and leave a number behind."""
    for start in range(0, len(answered), _TRACED_AT_ONCE):
        traced: list[tuple[SubTask, Completion, tuple[int, int], Future[Trace]]] = []
        for subtask, completion in answered[start : start + _TRACED_AT_ONCE]:
            place = task.place_of(task.item(subtask.problem), completion.text)
            if place is None:
                left_out["no_program"] += 1
                continue
            program = completion.text[slice(*place)]
            traced.append((subtask, completion, place, trace_of(judge, Candidate(subtask.problem, program, 0, 0))))
        for subtask, completion, place, future in traced:
            numbers = _numbers(future)
            if isinstance(numbers, str):
                left_out[numbers] += 1
            else:
                yield Run(subtask, completion, place, numbers)


def _numbers(future: Future[Trace]) -> Mapping[str, float] | str:
    """The numerical variables of a traced run, or why there are none."""
    try:
        trace = future.result()
    except JudgeFault:
        return "judge_fault"
    if trace.status is not TraceStatus.FINISHED:
        return "did_not_end_normally"
    found = {name: number for name, value in trace.values.items() if (number := number_of(value)) is not None}
    return found or "no_number"


def without_leaks(runs: Sequence[Run], left_out: Counter[str]) -> list[Run]:
    """The runs without those to be tested on whose program and input are also learnt from, by another problem."""
    known = leaks([((run.program, run.subtask.given), run.subtask.is_test) for run in runs])
    left_out.update({"also_in_training": len(known)} if known else {})
    return [run for index, run in enumerate(runs) if index not in known]


def locate(
    run: Run, tokenizer: PreTrainedTokenizerBase, left_out: Counter[str], variables_left_out: Counter[str]
) -> Reading | None:
    """The tokens at which the numbers of a run are read; None if there are none."""
    places, shared = last_occurrences(run.program), shared_names(list(run.numbers))
    tokens, values = list[int](), list[float]()
    for name, value in run.numbers.items():
        place = places.get(name.rpartition(".")[2])
        stop = run.place[0] + place[1] if place else 0
        token = token_at(run.completion.text, stop, run.completion.tokens.tolist(), lambda ids: _said(tokenizer, ids))
        if name in shared or token is None:
            variables_left_out["shared_name" if name in shared else "no_place"] += 1
            continue
        tokens.append(token)
        values.append(value)
    if not values:
        left_out["no_place"] += 1
        return None
    return Reading(run, tuple(tokens), tuple(values))


def _said(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True))
