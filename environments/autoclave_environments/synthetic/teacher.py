"""Demonstrations for the warm start, by a careless teacher who misunderstands some operations.

The policy learns the form of an answer, and a prior with plausible mistakes that reinforcement learning can correct. A
misunderstood operation always has the same mistake.
No statement or program has a pair of operations that is kept for validation or the report, not even after an operation
between them is left out; and no task or program, right or wrong, behaves like a problem of those sets.
"""

import copy
import random
from collections.abc import Iterator
from itertools import islice

from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave.core import Problem
from autoclave.problems.prompts import DemonstratedProgram, Demonstration, fenced, plain_messages
from autoclave_environments.synthetic.behaviour import intermediate_values, signature
from autoclave_environments.synthetic.build import build_synthetic, draw_task, draw_test_inputs, problem_on
from autoclave_environments.synthetic.compose import DOMAINS, SyntheticTask, adjacent_pairs
from autoclave_environments.synthetic.inputs import Arguments
from autoclave_environments.synthetic.operations import Operation
from autoclave_environments.synthetic.split import Part, Split, lowest

DEPTHS = (1, 2, 2, 3)
"""Numbers of operations of the demonstrations, cycled."""
_INPUT_SETS = 4  # of a program, which is faster to run than to draw

Attempt = tuple[tuple[str, ...], bool]
"""Code of each piece of a program, and whether the program is right."""


def demonstrations(config: SyntheticConfig, sft: SftConfig, *, fences: bool = True) -> list[Demonstration]:
    """Return `sft.demonstrations` programs as the teacher writes them, right and wrong, some perhaps equal.

    With `fences`, each is in a fence.

    Raises:
        ConfigError: the problems cannot be built.
    """
    written = islice(_written(config, sft), sft.demonstrations)
    return [_demonstrated(task, attempt, fences) for task, (attempt,) in written]


def demonstrated_attempts(
    config: SyntheticConfig, sft: SftConfig, *, turns: int, fences: bool = True
) -> Iterator[tuple[Problem, list[Demonstration]]]:
    """Yield problems without end, and `turns` attempts at each: after the first, the teacher may know what is unsaid.

    Raises ConfigError: the problems cannot be built.
    """
    for task, attempts in _written(config, sft, turns):
        inputs = draw_test_inputs(task, random.Random(f"{config.seed} attempts at {task.id}"))
        yield problem_on(task, inputs), [_demonstrated(task, attempt, fences) for attempt in attempts]


def _demonstrated(task: SyntheticTask, attempt: Attempt, fences: bool) -> Demonstration:
    program = task.program(attempt[0])
    response = fenced(program, "python") if fences else program
    return Demonstration(task.id, plain_messages(task.statement), response, attempt[1])


def demonstrated_programs(
    config: SyntheticConfig, sft: SftConfig, *, misreading_rate: float
) -> Iterator[DemonstratedProgram]:
    """Yield the same programs without end, on random inputs for each, with their intermediate values.

    On each input each operation is overlooked with the probability `misreading_rate`.

    Raises:
        ConfigError: the problems cannot be built.
    """
    for task, ((codes, _),) in _written(config, sft):
        draw = random.Random(f"{config.seed} inputs of {task.id}")
        drawn = [inputs for _ in range(_INPUT_SETS) for inputs in draw_test_inputs(task, draw)]
        inputs = list({repr(each): each for each in drawn}.values())
        read = [_read(task, codes, misreading_rate, draw) for _ in inputs]
        workings = [_working(task, each, arguments) for each, arguments in zip(read, inputs, strict=True)]
        yield DemonstratedProgram(
            problem_on(task, inputs), task.program(codes), workings, [task.program(each) for each in read]
        )


def _read(task: SyntheticTask, codes: tuple[str, ...], rate: float, draw: random.Random) -> tuple[str, ...]:
    """Return the codes as the teacher reads them: some operations are overlooked, some starts and finals mistaken."""
    others = [
        "" if piece in task.steps else piece.wrong[0] if code == piece.code else piece.code
        for piece, code in zip(task.pieces, codes, strict=True)
    ]
    return tuple(other if code and draw.random() < rate else code for code, other in zip(codes, others, strict=True))


def _working(task: SyntheticTask, codes: tuple[str, ...], arguments: Arguments) -> list[str]:
    """Return a line per piece of a program with the value after it, such as `n: 3`, which is not valid code."""
    *values, _ = intermediate_values(task.domain, codes, copy.deepcopy(arguments))
    return [f"{task.domain.variable}: {value!r}" for code, value in zip(codes, values, strict=False) if code]


def _written(config: SyntheticConfig, sft: SftConfig, turns: int = 1) -> Iterator[tuple[SyntheticTask, list[Attempt]]]:
    """Yield tasks, and so many attempts of the teacher at each."""
    split = Split.of(config.seed, config.heldout_share)
    kept = build_synthetic(config).kept_behaviours
    misunderstood = _misunderstood(config.seed, sft.misunderstood_share)
    rng = random.Random(f"{config.seed} demonstrations")
    number = 0
    while True:
        task = draw_task(split, Part.TRAIN, DEPTHS[number % len(DEPTHS)], rng, config)
        written = [_write(task, sft, misunderstood, rng, has_read=turn > 0) for turn in range(turns)]
        if any(split.part(_written_pairs(task, codes)) is not Part.TRAIN for codes in written):
            continue
        right = signature(task.domain, task.codes)
        behaviours = [right if codes == task.codes else signature(task.domain, codes) for codes in written]
        if not kept.isdisjoint((right, *behaviours)):
            continue
        yield task, [(codes, each == right) for codes, each in zip(written, behaviours, strict=True)]
        number += 1


def _misunderstood(seed: int, share: float) -> frozenset[Operation]:
    """Return the operations that the teacher misunderstands: of each domain the same share."""
    return frozenset(
        operation
        for domain in DOMAINS
        for name in lowest([operation.name for operation in domain.operations], share, f"{seed} misunderstood")
        for operation in domain.operations
        if operation.name == name
    )


def _write(
    task: SyntheticTask, sft: SftConfig, misunderstood: frozenset[Operation], rng: random.Random, *, has_read: bool
) -> tuple[str, ...]:
    """Return the code of each piece as the teacher writes it; "" for a forgotten operation.

    An unsaid parameter is guessed, unless the teacher `has_read` a failed test, and understood it.
    """
    codes: list[str] = []
    for piece in task.pieces:
        if piece.is_unsaid and not (has_read and rng.random() >= sft.misunderstood_error_rate):
            piece = piece.guessed(rng)
        if piece.operation in misunderstood:
            is_wrong = rng.random() < sft.misunderstood_error_rate
            codes.append(piece.wrong[0] if is_wrong else piece.code)
        elif rng.random() < sft.error_rate:
            left_out = ("",) if piece in task.steps else ()
            codes.append(rng.choice((*piece.wrong, *left_out)))
        else:
            codes.append(piece.code)
    return tuple(codes)


def _written_pairs(task: SyntheticTask, codes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the adjacent pairs of operations in the program, without those left out."""
    first = len(task.start)
    steps = [piece for place, piece in enumerate(task.steps, start=first) if codes[place]]
    return adjacent_pairs(task.domain, steps)
