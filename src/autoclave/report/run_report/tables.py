"""The tables of the report: time per stage, results per family, configuration, versions and machine."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core.json import leaves
from autoclave.report import text
from autoclave.report.charts import Axis, Figure, column_chart
from autoclave.report.run_report.figures import averaged, metric_figure
from autoclave.runs.reader import Row, Run, number

STAGES = {
    "sampling": ("accepted", "judging runs beside it"),
    "judge tail": ("wrong_answer", "judging that sampling did not hide"),
    "rest of collecting": ("bad_format", "collecting beyond the two above"),
    "log-probs": ("time_limit", "of the current weights"),
    "learning": ("compile_error", "advantages, losses, updates"),
    "publishing": ("runtime_error", "new weights to the samplers"),
    "rest of the step": ("no_verdict", "everything else between two steps"),
}
"""Parts of a step: colour and meaning."""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A part of a whole: its seconds, and its share of all."""

    label: str
    colour: str
    note: str
    time: str
    share: float


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """Held-out results of one family of problems; None where an evaluation did not have it."""

    name: str
    problems: int | None
    before: float | None
    after: float | None
    greedy_before: float | None
    greedy_after: float | None


def stage_seconds(row: Row) -> dict[str, float]:
    """Seconds of a step in each of `STAGES`. They add up to the step."""
    sample, tail = number(row, "time/sample_s") or 0.0, number(row, "time/judge_tail_s") or 0.0
    collect, learn = number(row, "time/collect_s") or sample + tail, number(row, "time/learn_s") or 0.0
    log_prob, publish = number(row, "time/log_prob_s") or 0.0, number(row, "time/publish_s") or 0.0
    step = number(row, "time/step_s") or 0.0
    parts = [
        sample,
        tail,
        collect - sample - tail,
        log_prob,
        learn - log_prob,
        publish,
        step - collect - learn - publish,
    ]
    return {stage: max(0.0, part) for stage, part in zip(STAGES, parts, strict=True)}


def stage_figure(run: Run) -> Figure:
    """Seconds of each step, stacked by stage."""
    columns = [(float(row["step"]), stage_seconds(row)) for row in averaged(run.train)]
    present = [stage for stage in STAGES if any(seconds[stage] > 1e-3 for _, seconds in columns)]
    layers = [(stage, STAGES[stage][0]) for stage in present]
    shown = [(step, [seconds[stage] for stage in present]) for step, seconds in columns]
    svg = column_chart(layers, shown, Axis("step"), Axis("seconds per step")) if present else None
    return Figure("Time per step", "Stacked by stage.", svg, tuple(layers) if svg else ())


def throughput_figure(run: Run) -> Figure:
    axis = Axis("tokens per second")
    return metric_figure(averaged(run.train), "Sampling speed", "Response tokens.", axis, "sampled_tokens_per_s")


def stage_rows(run: Run) -> list[TimeRow]:
    seconds = [stage_seconds(row) for row in run.train]
    totals = {stage: sum(step[stage] for step in seconds) for stage in STAGES}
    return _time_rows([(stage, *STAGES[stage], total) for stage, total in totals.items()])


def whole_run_rows(run: Run) -> list[TimeRow]:
    """Parts of the time of the whole run; empty without a summary."""
    total = number(run.summary, "seconds_total")
    if total is None:
        return []
    parts = [
        ("warm start", "greedy", "supervised fine-tuning", number(run.summary, "seconds_sft") or 0.0),
        ("reinforcement learning", "accent", "all steps", number(run.summary, "seconds_rl") or 0.0),
        ("evaluation", "time_limit", "on held-out problems", number(run.summary, "seconds_evaluation") or 0.0),
    ]
    rest = total - sum(seconds for *_, seconds in parts)
    return _time_rows([*parts, ("rest", "no_verdict", "start, checkpoints, files", max(0.0, rest))])


def _time_rows(parts: Sequence[tuple[str, str, str, float]]) -> list[TimeRow]:
    total = sum(seconds for *_, seconds in parts) or 1.0
    return [
        TimeRow(label, colour, note, text.duration(seconds), seconds / total)
        for label, colour, note, seconds in parts
        if seconds > 0
    ]


def family_rows(run: Run) -> tuple[list[FamilyRow], str]:
    """Families of the first and the latest evaluation that have them, and what the latter is called."""
    rows = [row for row in run.evaluations if isinstance(row.get("families"), dict)]
    if not rows:
        return [], ""
    before: dict[str, Row] = rows[0]["families"]
    after: dict[str, Row] = rows[-1]["families"] if len(rows) > 1 else {}
    table: list[FamilyRow] = []
    for name in sorted({*before, *after}):
        first, last = before.get(name), after.get(name)
        problems = number(first, "problems") or number(last, "problems")
        greedy = number(first, "greedy"), number(last, "greedy")
        passes = number(first, "pass@1"), number(last, "pass@1")
        table.append(FamilyRow(name, None if problems is None else int(problems), *passes, *greedy))
    return table, f"step {rows[-1]['step']:.0f}" if len(rows) > 1 else ""


def config_blocks(config: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """`(block, [(dotted key, value)])`; settings of the root come first, in a block without a name."""
    blocks: dict[str, list[tuple[str, str]]] = {"": []}
    for path, value in leaves(config):
        block, dot, key = path.partition(".")
        blocks.setdefault(block if dot else "", []).append((key or block, _shown(value)))
    return list(blocks.items())


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list) and not any(isinstance(part, dict | list) for part in value):
        return ", ".join(map(_shown, value)) or "none"
    return json.dumps(value, ensure_ascii=False, default=str)


def environment_rows(run: Run) -> list[tuple[str, str]]:
    """Versions, machine, start and command, as the summary has them."""
    summary = run.summary or {}
    versions, machine = summary.get("versions") or {}, summary.get("machine") or {}
    rows = [(key, versions[key]) for key in versions]
    memory = number(machine, "memory_gb")
    rows += [
        ("processor", machine.get("cpu")),
        ("cores", machine.get("cores")),
        ("memory", memory and f"{memory:.1f} GB"),
        ("GPU", machine.get("gpu") or "none"),
        ("kernel", machine.get("kernel")),
        ("started", summary.get("started")),
    ]
    return [(label, str(value)) for label, value in rows if value not in (None, "")] if run.summary else []
