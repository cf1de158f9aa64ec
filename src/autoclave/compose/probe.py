"""Linear probes of models: each writes programs for sub-tasks, and its hidden states at their variables are read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from autoclave.compose.alignment import objection, trace_of
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.workers import open_samplers
from autoclave.config import CodeGenerationConfig, TrainConfig
from autoclave.core import Completion, ConfigError, InputError, JudgeFault, Trace, TraceStatus, read_problems
from autoclave.evaluation.probing.places import last_occurrences, shared_names, token_at
from autoclave.evaluation.probing.regression import Fitting
from autoclave.evaluation.probing.report import ModelReport, ProbeReport
from autoclave.evaluation.probing.result import Examples, number_of, probe_layers
from autoclave.evaluation.probing.subtasks import SubTask, leaks, subtasks_of
from autoclave.judge import Judge
from autoclave.models import context_of, encode_prompt, load_architecture, load_policy, load_tokenizer, resolve_device
from autoclave.models.response_log_probs import hidden_states_at
from autoclave.problems import ProblemSets, require_fitting
from autoclave.rollout import Request, Sampler, SamplingParameters
from autoclave.tasks import CodeGeneration
from autoclave.training.alignment.candidates import Candidate


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Questions and fits of a probe.

    Attributes:
        fitting: of the probes.
        test_share: of the sub-tasks of each problem.
        temperature: of sampling; 0 is greedy.
        problems: how many, the first ones; None for all.
        examples: most sub-tasks of a problem; None for all.
    """

    fitting: Fitting
    test_share: float = 0.2
    temperature: float = 0.0
    problems: int | None = None
    examples: int | None = None


def probe(
    config: TrainConfig,
    models: Mapping[str, Path],
    options: ProbeOptions,
    *,
    problems: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> ProbeReport:
    """Probe the models in these folders, by name, on held-out problems or those of a file.

    Raises:
        InputError: a model or the problem file cannot be used, or no problem has an example.
        ConfigError: the task is not that of writing programs.
        IsolationError: this host cannot isolate as asked.
    """
    if not isinstance(config.task, CodeGenerationConfig):
        raise ConfigError(f"task.name = {config.task.name}: probes read programs; use task.name=code_generation")
    settle_libraries(config)
    for model in models.values():
        load_tokenizer(model)  # what cannot be used is found out before there is any work
    asked = (list(read_problems(problems)) if problems else ProblemSets(config).heldout)[: options.problems]
    where = f"--problems {problems}" if problems else "the held-out problems"
    require_fitting(asked, config.task, where)
    subtasks = subtasks_of(asked, test_share=options.test_share, seed=config.seed, most=options.examples)
    if not subtasks:
        raise InputError(f"{where}: none has an example; give Python problems with tests of kind stdin or call")
    with build_judge(config.judge, config.sandbox) as judge:
        task = CodeGeneration(judge, config.task)
        found = tuple(
            _probe_model(config, name, model, subtasks, task, judge, options, say) for name, model in models.items()
        )
    return ProbeReport(
        problems=len(asked),
        problems_with_examples=len({subtask.task for subtask in subtasks}),
        seed=config.seed,
        settings=_settings(config, config.task, options),
        models=found,
    )


def _probe_model(
    config: TrainConfig,
    name: str,
    model: Path,
    subtasks: Sequence[SubTask],
    task: CodeGeneration,
    judge: Judge,
    options: ProbeOptions,
    say: Callable[[str], None],
) -> ModelReport:
    left_out, variables_left_out = Counter[str](), Counter[str]()
    tokenizer = load_tokenizer(model)
    context = context_of(load_architecture(model))
    room = None if context is None else context - config.longest_evaluated
    with open_samplers(config, model, say) as samplers:
        say(f"{name}: {len(subtasks)} sub-tasks")
        parameters = SamplingParameters(options.temperature, 1.0, config.longest_evaluated, config.sampler.stops)
        answered = sample(subtasks, task, samplers, tokenizer, parameters, config.seed, room, left_out)
    runs = without_leaks(list(run_programs(answered, task, judge, left_out)), left_out)
    readings = [each for run in runs if (each := locate(run, tokenizer, left_out, variables_left_out))]
    say(f"{name}: {sum(len(each.values) for each in readings)} variables in {len(readings)} programs")
    examples = read(config, model, readings)
    device = resolve_device(config.model.device)
    probed = probe_layers(examples, options.fitting, seed=config.seed, device=device)
    tested = sum(each.run.subtask.is_test for each in readings)
    return ModelReport(
        name=name,
        path=str(model),
        asked=len(subtasks),
        train=len(readings) - tested,
        test=tested,
        left_out=dict(sorted(left_out.items())),
        variables_left_out=dict(sorted(variables_left_out.items())),
        probed=probed,
    )


def read(config: TrainConfig, model: Path, readings: "Sequence[Reading]") -> Examples:
    """The hidden states of the model in folder `model` at the tokens of `readings`, with what is to be read there."""
    policy = load_policy(model, dtype=config.model.dtype, device=config.model.device)
    hidden = [
        hidden_states_at(
            policy.model,
            np.concatenate([each.run.completion.prompt_tokens, each.run.completion.tokens]).tolist(),
            [len(each.run.completion.prompt_tokens) + token for token in each.tokens],
        )
        for each in readings
    ]
    sizes = [len(each.values) for each in readings]
    return Examples(
        hidden=torch.cat(hidden) if hidden else torch.zeros(0, 1, 1),
        values=np.array([value for each in readings for value in each.values], dtype=np.float64),
        problems=np.repeat(np.array([each.run.subtask.task for each in readings], dtype=np.int64), sizes),
        is_test=np.repeat(np.array([each.run.subtask.is_test for each in readings], dtype=np.bool_), sizes),
    )


def _settings(config: TrainConfig, task: CodeGenerationConfig, options: ProbeOptions) -> dict[str, object]:
    return {
        **asdict(options.fitting),
        "test_share": options.test_share,
        "temperature": options.temperature,
        "problems": options.problems,
        "examples": options.examples,
        "max_new_tokens": config.longest_evaluated,
        "template": task.template,
        "extraction": task.extraction,
        "dtype": config.model.dtype,
        "engine": config.sampler.engine.name,
    }


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
    """Places at which the numbers of a run are read: the index of a token of the response, and what it held."""

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
