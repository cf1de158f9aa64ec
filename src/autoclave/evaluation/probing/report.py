"""Results of all models: as JSON (`autoclave-probe/1`) and as a table. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core.json import finite
from autoclave.evaluation.probing.result import Errors, ProbeResult

FORMAT = "autoclave-probe/1"
_COLUMN = 12


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Report of one model.

    Attributes:
        name: as given by the user.
        path: its folder.
        asked: number of sub-tasks.
        train: sub-tasks with a training example.
        test: sub-tasks with a test example.
        left_out: number of other sub-tasks by reason.
        variables_left_out: number of numerical variables without an example by reason.
        probed: the figures.
    """

    name: str
    path: str
    asked: int
    train: int
    test: int
    left_out: Mapping[str, int]
    variables_left_out: Mapping[str, int]
    probed: ProbeResult


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Reports of all models. `settings` are those that the figures depend on."""

    problems: int
    problems_with_examples: int
    seed: int
    settings: Mapping[str, Any]
    models: tuple[ModelReport, ...]

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Names of models without training or test examples."""
        return tuple(model.name for model in self.models if not model.probed.layers)

    def to_json(self) -> dict[str, Any]:
        """Return the object of the file, null for missing figures."""
        return finite(
            {
                "format": FORMAT,
                "problems": {"asked": self.problems, "with_examples": self.problems_with_examples},
                "seed": self.seed,
                "settings": dict(self.settings),
                "models": [_model(model) for model in self.models],
            }
        )


def describe(report: ProbeReport) -> str:
    """Return the table that the command prints."""
    rows = [f"{'model':<18}{'sub-tasks':>11}{'trained on':>13}{'tested on':>11}{'of these beyond training':>26}"]
    for model in report.models:
        found, runs = model.probed, f"{model.train + model.test}/{model.asked}"
        rows.append(f"{_short(model.name, 18):<18}{runs:>11}{found.train:>13}{found.test:>11}{found.test_outside:>26}")
    measured = [model for model in report.models if model.probed.layers]
    if measured:
        rows += ["", "mean squared error over all test examples", *_errors_table(measured, lambda each: each.mse)]
        rows += ["", "over those within the range of training", *_errors_table(measured, lambda each: each.inside)]
    reasons = [f"{model.name}: {_reasons(model)}" for model in report.models if _reasons(model)]
    return "\n".join([*rows, *(["", "left out"] if reasons else []), *reasons])


def _errors_table(models: Sequence[ModelReport], of: Callable[[Errors], float]) -> Iterator[str]:
    yield f"{'layer':<8}" + "".join(
        f"{_short(each.name, _COLUMN):>{_COLUMN}}{'shuffled':>{_COLUMN}}" for each in models
    )
    for layer in range(max(len(model.probed.layers) for model in models)):
        pairs = [each.probed.layers[layer] if layer < len(each.probed.layers) else None for each in models]
        cells = [text for p in pairs for text in (_error(p and of(p.probe)), _error(p and of(p.shuffled)))]
        yield f"{layer:<8}" + "".join(f"{cell:>{_COLUMN}}" for cell in cells)
    yield f"{'mean':<8}" + "".join(f"{_error(of(each.probed.mean)):>{_COLUMN}}{'':>{_COLUMN}}" for each in models)


def _reasons(model: ModelReport) -> str:
    found = model.probed
    examples = {"without_scale": found.without_scale, "untrained": found.untrained}
    counted = {
        "sub-tasks": model.left_out,
        "variables": dict(model.variables_left_out) | {name: count for name, count in examples.items() if count},
    }
    parts = [f"{count} {what}: {name.replace('_', ' ')}" for what, by in counted.items() for name, count in by.items()]
    return ", ".join(parts)


def _model(model: ModelReport) -> dict[str, Any]:
    found = model.probed
    return {
        "name": model.name,
        "path": model.path,
        "subtasks": {"asked": model.asked, "train": model.train, "test": model.test, "left_out": dict(model.left_out)},
        "examples": {
            "train": found.train,
            "test": found.test,
            "test_outside": found.test_outside,
            "problems": found.problems,
            "left_out": dict(model.variables_left_out)
            | {"without_scale": found.without_scale, "untrained": found.untrained},
        },
        "baseline": {"training_mean": _errors(found.mean), "variance": found.variance},
        "layers": [
            {"layer": each.layer, **_errors(each.probe), "shuffled": _errors(each.shuffled)} for each in found.layers
        ],
    }


def _errors(errors: Errors) -> dict[str, Any]:
    return {"mse": errors.mse, "mse_inside": errors.inside}


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3g}"


def _short(name: str, length: int) -> str:
    return name if len(name) < length else f"{name[: length - 3]}…"
