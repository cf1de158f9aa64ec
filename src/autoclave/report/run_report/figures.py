"""Charts of a run. `charts.py` draws them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from autoclave.core.verdict import Status
from autoclave.report.charts import Axis, Figure, Interval, Line, Point, column_chart, line_figure
from autoclave.runs.reader import Row, Run, number

DRAWN_POINTS = 200
"""Most points of a curve; longer runs are averaged over neighbouring steps."""

STAGE, LIMIT = "length_schedule/stage", "length_schedule/max_new_tokens"
"""Metrics of a run whose responses may become longer."""

MARKED_POINTS = 30
"""Curves with more points are drawn without a mark at each."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of a chart: where it stands in a row, and how it is shown."""

    key: str
    label: str
    colour: str
    is_smoothed: bool = True
    """Off for what is zero at most steps: a mean would draw plateaus that never were."""


def curve_sections(run: Run) -> list[tuple[str, list[Figure]]]:
    """`(heading, figures)` of the curves over training."""
    train = averaged(run.train)
    share, nats = Axis("share of rollouts", is_share=True), Axis("nats")
    metric, curves = partial(metric_figure, train), partial(curves_figure, train)
    faults = [Curve("no_verdict_share", "no verdict", "accent", is_smoothed=False)]
    clips = [
        Curve("policy/clip_fraction_lower", "below", "time_limit"),
        Curve("policy/clip_fraction_upper", "above", "accepted"),
    ]
    gaps = [
        Curve("policy/log_prob_mismatch", "largest in training", "accent"),
        Curve("publish/mismatch_max", "largest after publish", "greedy"),
        Curve("publish/mismatch_mean", "mean after publish", "compile_error"),
        Curve("publish/mismatch_k3", "k3 after publish", "time_limit"),
    ]
    alike = "All rollouts of the problem earned the same, so they teach nothing."
    of_groups, of_tokens = Axis("share of groups", is_share=True), Axis("share of tokens", is_share=True)
    better = [
        evaluation_figure(run),
        metric("Training reward", "On the problems being trained on.", Axis("mean reward"), "reward/mean"),
        status_figure(train),
        metric("Groups without a signal", alike, of_groups, "groups/zero_variance_share"),
    ]
    responses = [
        length_figure(run, train),
        metric("Entropy", "Of the policy, per sampled token.", nats, "policy/entropy"),
        metric("Truncated", "Cut off by the limit of new tokens.", share, "truncated_share"),
        curves("Without a verdict", "The judge had a fault; not trained on.", share, faults),
    ]
    learning = [
        curves("Clipped tokens", "Probability ratio outside of the trust region.", of_tokens, clips),
        metric("Gradient norm", "Over all parameters, before clipping.", Axis("norm"), "policy/gradient_norm"),
        metric("Divergence", "KL per token, as the algorithm estimates it.", nats, "policy/approx_kl"),
        curves(
            "Gap of trainer and sampler",
            "How far their log-probs of a token are apart; should be rounding.",
            nats,
            gaps,
        ),
        metric_figure(
            averaged(run.sft), "Warm start", "Loss of supervised fine-tuning.", Axis("nats per token"), "loss"
        ),
    ]
    return [
        ("Is it getting better?", better),
        ("What are the responses like?", responses),
        ("Is learning healthy?", learning),
    ]


def length_figure(run: Run, train: Sequence[Row]) -> Figure:
    """Lengths of responses, with their limit where it has stages."""
    starts = stage_starts(run.train)
    if not starts:
        return metric_figure(train, "Response length", "Sampled tokens.", Axis("tokens"), "response_length/mean")
    told = "; ".join(f"stage {stage} from step {step}: {limit} tokens" for stage, step, limit in starts)
    curves = [
        Curve("response_length/mean", "responses", "accent"),
        Curve(LIMIT, "their limit", "time_limit", is_smoothed=False),
    ]
    return curves_figure(train, "Response length", f"Sampled tokens. {told.capitalize()}.", Axis("tokens"), curves)


def stage_starts(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    """`(stage, step, limit)` of each stage of the length schedule: the first step that learnt from it alone."""
    found: dict[int, tuple[int, int, int]] = {}
    for row in rows:
        stage, limit = number(row, STAGE), number(row, LIMIT)
        if stage is not None and limit is not None and stage.is_integer():
            found.setdefault(int(stage), (int(stage), int(row["step"]), int(limit)))
    return list(found.values())


def evaluation_figure(run: Run) -> Figure:
    """Held-out results over steps, pass@1 with its interval."""
    rows = run.evaluations
    most = max((number(row, "problems") or 0 for row in rows), default=0)
    subset = frozenset(float(row["step"]) for row in rows if (number(row, "problems") or 0) < most)
    is_short = len(rows) <= MARKED_POINTS
    lines = [
        Line("greedy", "greedy", series(rows, "greedy"), style="dotted", has_marks=is_short),
        heldout_line("pass@1", "accent", rows, subset),
    ]
    note = "The band is the interval of pass@1." + (
        " Rings: a part of the held-out problems." if subset and is_short else ""
    )
    axis = Axis("held-out problems solved", is_share=True)
    figure = line_figure("Held-out problems", note, lines, step_axis(run.train, rows), axis)
    return replace(figure, legend=figure.legend[::-1])


def heldout_line(label: str, colour: str, rows: Sequence[Row], hollow: frozenset[float] = frozenset()) -> Line:
    """pass@1 of evaluations, with its interval where one is recorded."""
    found = [(float(row["step"]), interval_of(row, "pass@1")) for row in rows]
    band = [(step, *interval.bounds) for step, interval in found if interval and interval.bounds]
    points = series(rows, "pass@1")
    return Line(label, colour, points, band, has_marks=len(rows) <= MARKED_POINTS, hollow=hollow)


def interval_of(row: Row | None, key: str) -> Interval | None:
    """The value of `key` in `row` with its bounds; None without a value."""
    value = number(row, key)
    return None if value is None else Interval(value, number(row, f"{key}/low"), number(row, f"{key}/high"))


def status_figure(train: Sequence[Row]) -> Figure:
    """Verdicts over steps as stacked shares; what is missing to 1 has no verdict."""
    known = [status.value for status in Status]
    present = {key.removeprefix("status/") for row in train for key in row if key.startswith("status/")}
    statuses = sorted(present, key=lambda name: (known.index(name) if name in known else len(known), name))
    columns: list[tuple[float, list[float]]] = []
    for row in train:
        shares = [number(row, f"status/{status}") or 0.0 for status in statuses]
        columns.append((float(row["step"]), [*shares, max(0.0, 1 - sum(shares))]))
    layers = [(status.replace("_", " "), status if status in known else "other") for status in statuses]
    layers.append(("no verdict", "no_verdict"))
    used = [index for index in range(len(layers)) if any(parts[index] > 1e-6 for _, parts in columns)]
    layers = [layers[index] for index in used]
    shown = [(step, [parts[index] for index in used]) for step, parts in columns]
    axis = Axis("share of rollouts", is_share=True, high=1.0)
    svg = column_chart(layers, shown, Axis("step"), axis) if statuses else None
    return Figure("Verdicts", "What became of the sampled programs.", svg, tuple(layers) if svg else ())


def metric_figure(rows: Sequence[Row], title: str, note: str, axis: Axis, key: str) -> Figure:
    """One metric: thin line the steps, thick line their running mean when there are enough."""
    return curves_figure(rows, title, note, axis, [Curve(key, title.lower(), "accent")])


def curves_figure(rows: Sequence[Row], title: str, note: str, axis: Axis, curves: Sequence[Curve]) -> Figure:
    lines: list[Line] = []
    for curve in curves:
        points = series(rows, curve.key)
        window = smoothing_window(len(points)) if curve.is_smoothed else 1
        if window > 1:
            lines.append(Line(curve.label, curve.colour, points, style="faint"))
            lines.append(Line(f"{curve.label}, mean of {window}", curve.colour, running_mean(points, window)))
        else:
            lines.append(Line(curve.label, curve.colour, points, has_marks=len(points) <= MARKED_POINTS))
    drawn = tuple((curve.label, curve.colour) for curve in curves if series(rows, curve.key))
    return replace(line_figure(title, note, lines, step_axis(rows), axis), legend=drawn if len(curves) > 1 else ())


def averaged(rows: Sequence[Row]) -> list[Row]:
    """At most `DRAWN_POINTS` rows: the mean of every number over equal runs of neighbours, at the last step of each."""
    size = -(-len(rows) // DRAWN_POINTS)
    if size <= 1:
        return list(rows)
    return [_mean_row(rows[start : start + size]) for start in range(0, len(rows), size)]


def series(rows: Sequence[Row], key: str) -> list[Point]:
    """`(step, value)` of the rows that have a finite value."""
    return [(float(row["step"]), value) for row in rows if (value := number(row, key)) is not None]


def smoothing_window(num_points: int) -> int:
    """Steps of a running mean that suits so many points: odd, about a twelfth of them; 1 for short runs."""
    return num_points // 24 * 2 + 1


def running_mean(points: Sequence[Point], window: int) -> list[Point]:
    """The mean of `window` neighbours around each point; fewer at the ends, the same number on both sides."""
    means: list[Point] = []
    for index, (x, _) in enumerate(points):
        reach = min(window // 2, index, len(points) - 1 - index)
        near = [value for _, value in points[index - reach : index + reach + 1]]
        means.append((x, sum(near) / len(near)))
    return means


def _mean_row(rows: Sequence[Row]) -> Row:
    mean: dict[str, float] = {}
    for key in {key for row in rows for key in row}:
        values = [value for row in rows if (value := number(row, key)) is not None]
        if values:
            mean[key] = sum(values) / len(values)
    return mean | {"step": rows[-1]["step"]}


def step_axis(*kinds: Sequence[Row]) -> Axis:
    """One horizontal axis from 0 to the last step, so that charts of one section can be compared."""
    return Axis("step", low=0.0, high=max((float(rows[-1]["step"]) for rows in kinds if rows), default=1.0) or 1.0)
