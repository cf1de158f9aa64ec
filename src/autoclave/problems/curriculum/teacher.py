"""Demonstrations for the warm start, by a teacher who is careless and misunderstands some operations.

The policy learns the form of an answer, and a prior with plausible mistakes in it, so that reinforcement learning has
something true to correct. A misunderstood operation is always mistaken in the same way.
No statement holds a pair of operations that is kept for validation or the report, nor does any program put the two one
after the other by leaving out what stood between; and neither the task nor the program, right or wrong, behaves like a
problem of those sets.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from itertools import islice

from autoclave.config.problems import CurriculumConfig
from autoclave.config.training import SftConfig
from autoclave.problems.curriculum.behaviour import signature, values_on_the_way
from autoclave.problems.curriculum.build import build_curriculum, draw_task, draw_test_inputs, problem_on
from autoclave.problems.curriculum.compose import DOMAINS, Task, adjacent_pairs
from autoclave.problems.curriculum.inputs import Arguments
from autoclave.problems.curriculum.operations import Operation
from autoclave.problems.curriculum.split import Part, Split, lowest
from autoclave.problems.demonstration import DemonstratedProgram, Demonstration
from autoclave.problems.prompts import plain_messages

DEPTHS = (1, 2, 2, 3)
"""Numbers of operations of the demonstrations, in turn."""
_INPUT_SETS = 4  # of a program; to draw a program takes longer than to run it


def demonstrations(config: CurriculumConfig, sft: SftConfig) -> list[Demonstration]:
    """What the teacher wrote: `sft.demonstrations` programs, right and wrong, some perhaps alike.

    Raises:
        ConfigError: the curriculum cannot be built.
    """
    return [
        Demonstration(task.id, plain_messages(task.statement), f"```python\n{task.program(codes)}\n```", is_right)
        for task, codes, is_right in islice(_written(config, sft), sft.demonstrations)
    ]


def demonstrated_programs(
    config: CurriculumConfig, sft: SftConfig, *, misreading_rate: float
) -> Iterator[DemonstratedProgram]:
    """The same programs, on inputs that are drawn for each, with what they compute on the way; without end.

    On each input each operation is overlooked with the chance `misreading_rate`.

    Raises:
        ConfigError: the curriculum cannot be built.
    """
    for task, codes, _ in _written(config, sft):
        draw = random.Random(f"{config.seed} inputs of {task.id}")
        drawn = [inputs for _ in range(_INPUT_SETS) for inputs in draw_test_inputs(task, draw)]
        inputs = list({repr(each): each for each in drawn}.values())
        read = [_read(task, codes, misreading_rate, draw) for _ in inputs]
        workings = [_working(task, each, arguments) for each, arguments in zip(read, inputs, strict=True)]
        yield DemonstratedProgram(
            problem_on(task, inputs), task.program(codes), workings, [task.program(each) for each in read]
        )


def _read(task: Task, codes: tuple[str, ...], rate: float, draw: random.Random) -> tuple[str, ...]:
    """The codes that are written, as the teacher reads them, who overlooks some operations, and takes what stands
    before or after them for another variant.
    """
    others = [
        "" if piece in task.steps else piece.wrong[0] if code == piece.code else piece.code
        for piece, code in zip(task.pieces, codes, strict=True)
    ]
    return tuple(other if code and draw.random() < rate else code for code, other in zip(codes, others, strict=True))


def _working(task: Task, codes: tuple[str, ...], arguments: Arguments) -> list[str]:
    """What holds after each piece of a program, in lines that look like no code; a value is told before the next piece
    changes it.
    """
    *values, _ = values_on_the_way(task.domain, codes, copy.deepcopy(arguments))
    return [f"{task.domain.variable}: {value!r}" for code, value in zip(codes, values, strict=False) if code]


def _written(config: CurriculumConfig, sft: SftConfig) -> Iterator[tuple[Task, tuple[str, ...], bool]]:
    """Tasks, the codes that the teacher writes for each, and whether they behave as they should."""
    split = Split.of(config.seed, config.heldout_share)
    kept = build_curriculum(config).kept_behaviours
    misunderstood = _misunderstood(config.seed, sft.misunderstood_share)
    rng = random.Random(f"{config.seed} demonstrations")
    number = 0
    while True:
        task = draw_task(split, Part.TRAIN, DEPTHS[number % len(DEPTHS)], rng, config.domains)
        codes = _write(task, sft, misunderstood, rng)
        if split.part(_written_pairs(task, codes)) is not Part.TRAIN:
            continue
        right = signature(task.domain, task.codes)
        behaviour = right if codes == task.codes else signature(task.domain, codes)
        if right in kept or behaviour in kept:
            continue
        yield task, codes, behaviour == right
        number += 1


def _misunderstood(seed: int, share: float) -> frozenset[Operation]:
    """The operations that the teacher misunderstands: of each domain the same share."""
    return frozenset(
        operation
        for domain in DOMAINS
        for name in lowest([operation.name for operation in domain.operations], share, f"{seed} misunderstood")
        for operation in domain.operations
        if operation.name == name
    )


def _write(task: Task, sft: SftConfig, misunderstood: frozenset[Operation], rng: random.Random) -> tuple[str, ...]:
    """The code of each piece as the teacher writes it; "" for an operation that was forgotten."""
    codes: list[str] = []
    for piece in task.pieces:
        if piece.operation in misunderstood:
            is_wrong = rng.random() < sft.misunderstood_error_rate
            codes.append(piece.wrong[0] if is_wrong else piece.code)
        elif rng.random() < sft.error_rate:
            left_out = ("",) if piece in task.steps else ()
            codes.append(rng.choice((*piece.wrong, *left_out)))
        else:
            codes.append(piece.code)
    return tuple(codes)


def _written_pairs(task: Task, codes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The pairs of operations that follow each other in the program, where some may have been left out."""
    first = len(task.start)
    steps = [piece for place, piece in enumerate(task.steps, start=first) if codes[place]]
    return adjacent_pairs(task.domain, steps)
