"""Alignment of a run: it traces failed programs while the policy learns, and deals the alignment samples.

A step goes like this. `learn` begins: the judge, which in most schedules is idle now, runs some of the failed programs
once more, and tells their final values. At the barrier `settle` waits for that, and puts the alignment samples into the
buffer in an order that does not depend on time. The next step that is begun takes the newest.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from autoclave.config import AlignmentConfig
from autoclave.core import AlignmentSample, Problem, Trace
from autoclave.core.errors import ConfigError, FaultError, JudgeFault
from autoclave.core.files import checkpoint_data, write_atomically
from autoclave.core.json import from_plain, to_plain
from autoclave.core.rollout import Group, TaskItem
from autoclave.tasks.alignment_samples import Source, Unusable, alignment_sample_of, input_of, is_short_input
from autoclave.training.alignment.buffer import AlignmentBuffer
from autoclave.training.alignment.candidates import Candidate, ProgramOf, candidates
from autoclave.training.alignment.items import MixedBatches
from autoclave.training.learned import ItemSource, ShuffledItems

FILE = "alignment.json"
STALL_S = 3600.0
_MANY = 8
"""So many programs and not one trace: the judge makes none."""


@dataclass(frozen=True, slots=True)
class AlignmentSampler:
    """Parts of a run that alignment needs."""

    item_of: Callable[[AlignmentSample], TaskItem]
    """An alignment sample as it is asked."""
    objection: Callable[[TaskItem], str | None]
    """Reason for which an item cannot be used, such as a prompt that is too long; None if it can."""
    program_of: ProgramOf
    """The program in a response."""
    trace: Callable[[Candidate], Future[Trace]]
    """Runs a program once more."""
    references: Callable[[], Sequence[Candidate]]
    """Solutions of the training problems, on their tests."""


class Alignment:
    """Alignment samples of a run, and the items that they are part of."""

    def __init__(
        self,
        config: AlignmentConfig,
        programs: ShuffledItems,
        alignment_sampler: AlignmentSampler,
        *,
        seed: int,
        parts: int = 1,
    ) -> None:
        """Mix alignment samples into `programs` as `config` says. A step learns from its groups in so many `parts`."""
        self._config, self._alignment_sampler, self._seed, self._parts = config, alignment_sampler, seed, parts
        self._per_step = math.ceil(programs.per_iteration * config.share)
        self._buffer = AlignmentBuffer(
            capacity=config.capacity,
            per_problem=config.per_problem,
            max_staleness=None if config.programs == "reference" else config.max_staleness,
        )
        self._mixed = MixedBatches(programs, self._buffer, alignment_sampler.item_of, share=config.share)
        self._step = self._part = 0
        self._pending: list[tuple[Candidate, Future[Trace]]] = []
        self._references: list[AlignmentSample] = []

    @property
    def items(self) -> ItemSource:
        """Items of each step."""
        return self._mixed

    def restart(self) -> None:
        """Forget all alignment samples, and deal from the start."""
        self._buffer.restore({"waiting": [], "known": []})
        self._mixed.restart()
        self._step, self._part, self._pending, self._references = 0, 0, [], []

    def begin_run(self) -> None:
        """Before the first step: where alignment samples are made of solutions, trace these.

        Raises FaultError: the judge does not answer, or makes no traces. ConfigError: there is no alignment sample in
        them.
        """
        if self._config.programs == "reference" and self._config.share:
            unusable = Counter[str]()
            self._trace(self._alignment_sampler.references(), self._config.capacity)
            self._references = self._finished(unusable)
            if not self._references:
                reasons = ", ".join(f"{reason} {count}" for reason, count in unusable.most_common()) or "none is there"
                raise ConfigError(
                    "alignment.programs = reference: no solution of a training problem is an alignment sample "
                    f"({reasons}); raise alignment.limits, or take programs = failed"
                )
            self._buffer.add(self._references)

    def begin(self, groups: Sequence[Group]) -> None:
        """Have some programs of `groups` run once more; nothing is waited for."""
        if self._config.programs == "reference" or not self._config.share:
            return
        found = candidates(
            groups,
            self._alignment_sampler.program_of,
            programs=self._config.programs,
            tests_per_program=self._config.tests_per_program,
            fits=self._fits,
            seed=(self._seed, self._step),
        )
        self._part += 1
        self._trace(found, math.ceil(self._budget() * self._part / self._parts) - len(self._pending))

    def _budget(self) -> int:
        """Most runs to trace in a step: about what alignment samples a step needs, and more while few wait.

        Many runs are no alignment sample, for want of a variable that says something; which, is known when they were
        traced.
        """
        return self._config.traced_per_step or self._per_step * (2 if len(self._buffer) >= 2 * self._per_step else 4)

    def settle(self, done: int, ahead: Collection[int], groups: Sequence[Group]) -> dict[str, float]:
        """At the barrier after `done` iterations, of which the last learnt from `groups`: take alignment samples in.

        Returns:
            Metrics.

        Raises:
            FaultError: the judge does not answer.
        """
        unusable = Counter[str]()
        alignment_samples = self._finished(unusable)
        traced = len(alignment_samples) + unusable.total()
        counts = self._buffer.add(
            reversed(alignment_samples)
        )  # the newest are asked first: those of tests that were failed
        counts["stale"] = self._buffer.drop_stale(done)
        if self._references and len(self._buffer) < self._per_step:  # all were asked: another round
            draw = np.random.default_rng((self._seed, done))
            self._buffer.add_again([self._references[index] for index in draw.permutation(len(self._references))])
        mix = self._mixed.batch(done - 1).mix
        self._mixed.forget(done, ahead)
        self._step, self._part = done, 0
        asked = sum(isinstance(group.item.payload, AlignmentSample) for group in groups)
        return {
            "alignment/share": asked / max(1, len(groups)),
            "alignment/short": float(mix.short),
            "alignment/waiting": float(len(self._buffer)),
            "alignment/traced": float(traced),
            **{f"alignment/{name}": float(counts[name]) for name in ("added", "duplicate", "dropped", "stale")},
            **{f"alignment/unusable/{reason}": float(count) for reason, count in sorted(unusable.items())},
        }

    def save(self, folder: Path) -> None:
        """Write buffer and order into the folder of a checkpoint."""
        content = {
            "step": self._step,
            "buffer": self._buffer.to_plain(),
            "items": self._mixed.to_plain(),
            "references": [to_plain(each) for each in self._references],
        }
        write_atomically(folder / FILE, json.dumps(content) + "\n")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. Raises CheckpointError: it is missing or damaged."""
        with checkpoint_data(folder / FILE) as content:
            self._step, self._part, self._pending = int(content["step"]), 0, []
            self._references = [from_plain(AlignmentSample, each, "alignment_sample") for each in content["references"]]
            self._buffer.restore(content["buffer"])
            self._mixed.restore(content["items"])

    def _trace(self, found: Sequence[Candidate], count: int) -> None:
        """Begin the first `count` runs that are new, those of one program one after the other: they share a cell."""
        seen = {_key(candidate) for candidate, _ in self._pending}
        chosen: list[Candidate] = []
        for candidate in islice(found, max(0, 8 * count)):
            key = _key(candidate)
            if len(chosen) < count and key not in seen and not self._buffer.knows(key):
                seen.add(key)
                chosen.append(candidate)
        by_program = sorted(range(len(chosen)), key=lambda place: (chosen[place].problem.id, chosen[place].program))
        traces = {place: self._alignment_sampler.trace(chosen[place]) for place in by_program}
        self._pending += [(candidate, traces[place]) for place, candidate in enumerate(chosen)]

    def _fits(self, program: str, problem: Problem, test: int) -> bool:
        """Return whether an alignment sample may be so long, which is known before anything is traced."""
        limits = self._config.limits_at(self._step)
        return len(program) <= limits.program_characters and is_short_input(problem, test, limits.input_characters)

    def _finished(self, unusable: Counter[str]) -> list[AlignmentSample]:
        """The alignment samples of all runs that were begun, in their order; waits for these."""
        pending, self._pending = self._pending, []
        if wait([future for _, future in pending], STALL_S).not_done:
            raise FaultError(f"alignment: the judge has not traced a program within {STALL_S:.0f} s")
        faults = [fault for _, future in pending if (fault := future.exception())]
        if len(faults) == len(pending) >= _MANY:
            raise FaultError(f"alignment: the judge has not traced one of {len(pending)} programs: {faults[-1]}")
        alignment_samples: list[AlignmentSample] = []
        for candidate, future in pending:
            found = alignment_sample_from(candidate, future, self._config, self._config.programs, step=self._step)
            objection = (
                found.reason
                if isinstance(found, Unusable)
                else self._alignment_sampler.objection(self._alignment_sampler.item_of(found))
            )
            if objection:
                unusable[objection] += 1
            elif isinstance(found, AlignmentSample):
                alignment_samples.append(found)
        return alignment_samples


def alignment_sample_from(
    candidate: Candidate, future: Future[Trace], config: AlignmentConfig, source: Source, *, step: int | None = None
) -> AlignmentSample | Unusable:
    """The alignment sample in the trace of a candidate, as large as it may be at `step`, or ever. Waits for it."""
    try:
        trace = future.result()
    except JudgeFault:
        return Unusable("no_trace")
    return alignment_sample_of(
        candidate.problem,
        candidate.program,
        trace,
        limits=config.limits if step is None else config.limits_at(step),
        asks=config.asks,
        min_informative=config.min_informative,
        source=source,
        version=candidate.version,
    )


class NoAlignment:
    """In its place in a run without alignment: programs alone."""

    def __init__(self, programs: ShuffledItems) -> None:
        self._programs = programs

    @property
    def items(self) -> ItemSource:
        """Items of each step."""
        return self._programs

    def restart(self) -> None:
        """Nothing is kept."""

    def begin_run(self) -> None:
        """Nothing is needed."""

    def begin(self, groups: Sequence[Group]) -> None:
        """Nothing is traced."""

    def settle(self, done: int, ahead: Collection[int], groups: Sequence[Group]) -> dict[str, float]:
        """No metrics."""
        return {}

    def save(self, folder: Path) -> None:
        """Nothing is kept."""

    def load(self, folder: Path) -> None:
        """Nothing is kept."""


def _key(candidate: Candidate) -> str:
    """That of the alignment sample that may come of a candidate."""
    problem = candidate.problem
    entry = getattr(problem.tests, "entry_point", "<module>")
    given = input_of(problem, candidate.test) or ""
    return AlignmentSample(
        problem_id=problem.id, test=candidate.test, program=candidate.program, entry=entry, input=given
    ).key
