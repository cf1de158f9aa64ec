"""From the settings of another framework to a recipe, and a report of what does not mean the same here."""

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from autoclave.config.choices import ALGORITHMS, ENGINES
from autoclave.config.frameworks import Correspondence, Framework, Kind, frameworks, kinds, meanings, reason_without
from autoclave.config.loader import Override, load
from autoclave.config.recipe import write_yaml
from autoclave.config.schedule import AsynchronousConfig, OneOffPipelineConfig, SynchronousConfig
from autoclave.config.training import TrainConfig
from autoclave.core.errors import ConfigError
from autoclave.core.json import shown

PATHS = {"name", "model.path", "critic.path", "reward_model.path"}
TEXTS = ("algorithm.name", "algorithm.correction", "algorithm.kl_estimator")
LISTS = {"loggers", "trainer.lora.targets"}
"""Settings here whose values are strings, or lists of strings."""
SECRET = re.compile(r"token$|secret|password|api_key|wandb\.key|use_wandb")
COMMON: dict[str, Any] = {"sft.steps": 0, "problems.name": "none", "schedule.name": "synchronous"}
"""Settings of a recipe whatever the framework: none has a warm start, and each has problems of its own."""
_CHOICES = (*ALGORITHMS, *ENGINES, SynchronousConfig, AsynchronousConfig, OneOffPipelineConfig)
_FIELDS = {str(schema.model_fields["name"].default): schema.model_fields for schema in _CHOICES}
"""The settings of each algorithm, schedule and engine."""
_FINDINGS = {
    "to_set": "Set these yourself",
    "differs": "Means something else here",
    "missing": "Has no counterpart here",
    "unknown": "Is not in the table of this importer, and is ignored",
}
"""Lists of settings in `Imported`, with their titles in the report."""


@dataclass
class Imported:
    """A recipe, and what is to be known of it."""

    framework: Framework
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings here, by dotted path."""
    to_set: list[str] = field(default_factory=list[str])
    differs: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])

    def report(self) -> Iterator[str]:
        for name, title in _FINDINGS.items():
            if entries := getattr(self, name):
                yield f"{title}:"
                yield from (f"- {entry}" for entry in entries)

    def tree(self) -> dict[str, Any]:
        """The settings as blocks inside each other."""
        tree: dict[str, Any] = {}
        for path, value in self.settings.items():
            *parents, last = path.split(".")
            block = tree
            for name in parents:
                block = cast("dict[str, Any]", block.setdefault(name, {}))
            block[last] = value
        return tree

    def as_json(self) -> dict[str, Any]:
        findings = {name: getattr(self, name) for name in _FINDINGS}
        return {"from": self.framework.title, "settings": self.settings, **findings}

    def recipe(self, source: str) -> str:
        """The recipe, with the report as comments."""
        head = [f"Settings of {self.framework.title}, from {source}, by `autoclave config import`.", *self.report()]
        return "".join(f"# {line}\n" for line in head) + write_yaml(self.tree())


def detect(found: Mapping[str, Any]) -> str:
    """Return the framework that has most of the names in `found`.

    Raises ConfigError: none does, or two have as many.
    """
    scores = {
        name: sum(theirs in each.names for theirs in found)
        for name, each in frameworks().items()
        if not each.marks or any(mark in found for mark in each.marks)
    }
    best = max(scores.values())
    named = [name for name, score in scores.items() if score == best]
    if "trl-rloo" in named:
        named.remove("trl")
    if not best or len(named) > 1:
        first = ", ".join(list(found)[:3])
        raise ConfigError(
            f"{first}: the settings may be of {' or '.join(named) if best else 'no framework that is known'}. "
            f"Fix: --from {'|'.join(frameworks())}"
        )
    return named[0]


def convert(found: Mapping[str, Any], framework: str, processes: int = 1) -> Imported:
    """Return the recipe that means what settings of another framework mean there, its defaults included.

    Args:
        found: the settings, by dotted name.
        framework: a key of `frameworks()`.
        processes: ranks of the run there; TRL counts batches for each.

    Raises:
        ConfigError: the settings cannot become a recipe.
    """
    result = Imported(frameworks()[framework], dict(COMMON))
    try:
        return _Import(result, found, processes).run()
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"a value has another form than in {result.framework.title} ({error})") from None


def _text(theirs: str, value: Any) -> str:
    """Return a setting of the file for the report, which must not repeat a secret."""
    return f"{theirs} = {'...' if SECRET.search(theirs) else shown(value)}"


def _is_usable(row: Correspondence, value: Any) -> bool:
    """Return whether a value is of a kind that conversions can compute with."""
    if isinstance(value, list):
        numbers = [each for each in cast("list[Any]", value) if isinstance(each, (int, float))]
        is_pair = len(numbers) == len(cast("list[Any]", value)) == 2
        return row.ours in LISTS or (is_pair and (row.unit in ("pair", "upper") or row.ours.endswith("betas")))
    is_text = row.ours in PATHS | LISTS or row.ours.startswith(TEXTS)
    return row.unit == "block" or is_text or not isinstance(value, str)


class _Import:
    """One import: the values of the settings by slot (`Correspondence.slots`), and what becomes of them."""

    def __init__(self, result: Imported, found: Mapping[str, Any], processes: int) -> None:
        self.result, self.framework, self.processes = result, result.framework, processes
        self.slots: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.given: set[str] = set()
        self.notes: dict[str, str] = {}
        self.read: set[str] = set()
        stated = self._stated(found)
        for theirs, value in stated.items():
            self._put(theirs, self.framework.settings[theirs], value, is_given=True)
        for theirs, row in self.framework.settings.items():
            if row.default is not None:
                self._put(theirs, row, row.default, is_given=False)
        for slot, value in ({"algorithm.mask_overlong": False} | self.framework.fixed).items():
            self.slots.setdefault(slot, value)

    def _stated(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that the table has, in its order; report the others."""
        names, stated = self.framework.names, dict[str, Any]()
        for theirs, value in found.items():
            text = _text(theirs, value)
            if "$" in text:
                self.result.to_set.append(f"{text}: the file does not say what this stands for")
            elif theirs in names:
                stated[names[theirs]] = value
            elif reason := reason_without(theirs):
                self.result.missing += [f"{text}: {reason}"] if value is not None else []
            elif value != {}:
                near = difflib.get_close_matches(theirs, names, n=1)
                self.result.unknown.append(f"{text}: did you mean {near[0]}?" if near else text)
        return {name: stated[name] for name in self.framework.settings if stated.get(name) is not None}

    def _put(self, theirs: str, row: Correspondence, value: Any, *, is_given: bool) -> None:
        text = _text(theirs, value)
        if not row.map and not _is_usable(row, value):
            self.result.missing.append(f"{text}: not a value that this setting has there")
            return
        try:
            mapped = row.mapped(value)
        except KeyError:
            if row.ours != "algorithm.name":
                as_if = "" if row.default is None else f"; {row.ours} is as for {shown(row.default)}"
                self.result.missing.append(f"{text}: there is nothing like it here{as_if}")
                return
            mapped = str(value)  # reported when an algorithm is chosen
        for slot in row.slots:
            if slot not in self.slots:
                self.slots[slot] = mapped
                self.origins[slot] = text if is_given else f"{text} (default there)"
                self.given.update([slot] if is_given else [])
                self.notes.update({slot: row.note} if row.note and value not in (False, 0, -1) else {})

    def get(self, slot: str, default: Any = None) -> Any:
        self.read.add(slot)
        value = self.slots.get(slot)
        return default if value is None else value

    def set(self, path: str, value: Any) -> None:
        self.result.settings[path] = value

    def differs(self, slot: str, text: str) -> None:
        self.result.differs.append(f"{self.origins[slot]}: {text}" if slot in self.origins else text)

    # --- The parts of a recipe, in the order in which they depend on each other ---

    def run(self) -> Imported:
        for slot, value in self.slots.items():
            if " " not in slot and value is not None and not slot.startswith(("algorithm", "critic", "trainer.lora")):
                self.set(slot, value)
        self._model()
        self._batches()
        kind = self._algorithm()
        if kind.name == "ppo":
            critic = {slot: value for slot, value in self.slots.items() if slot.startswith("critic.")}
            self.result.settings |= {slot: value for slot, value in critic.items() if value is not None}
        self._optimizer()
        self._intervals()
        self._in_order()
        self._notes(kind)
        self._without_effect()
        return self._loadable()

    def _model(self) -> None:
        settings, to_set = self.result.settings, self.result.to_set
        if not settings.get("model.path"):
            self.set("model.path", "OWNER/MODEL")
            to_set.append("model.path: the file does not name a model")
        to_set.append("problems.path: a file of problems (docs/reference/formats.md); a run without one cannot start")
        if "sampler.max_new_tokens" in settings:
            self.notes.pop("sampler.max_new_tokens sequence", None)
        elif limit := self.get("sampler.max_new_tokens sequence"):
            self.set("sampler.max_new_tokens", limit)
        loggers = "wandb" if self.get("loggers wandb") else self.get("loggers", [])
        loggers = [loggers] if isinstance(loggers, str) else loggers
        if others := [name for name in loggers if name not in ("wandb", "mlflow", "console", "tensorboard", "none")]:
            self.result.missing.append(f"{self.origins['loggers']}: no logger {', '.join(others)} here")
        self.set("loggers", [name for name in ("wandb", "mlflow") if name in loggers])
        has_block, is_on = "trainer.lora.rank block" in self.slots, self.get("trainer.lora.rank switch", True)
        if rank := is_on and (self.get("trainer.lora.rank", 0) or 16 * has_block):
            targets = self.get("trainer.lora.targets", "all-linear")
            parts = targets.split(",") if isinstance(targets, str) else targets
            self.set("trainer.lora.rank", rank)
            self.set("trainer.lora.alpha", self.get("trainer.lora.alpha", 32))
            self.set("trainer.lora.targets", [] if parts == ["all-linear"] else parts)
        for block in ("trainer.activation_checkpointing", "trainer.compile"):
            if f"{block} block" in self.slots:
                self.set(block, True)
        if self.get("reward_model.path switch", True) and self.get("reward_model.path path"):
            self.set("reward_model.path", self.get("reward_model.path path"))

    def _batches(self) -> None:
        """Set what a step is made of, in prompts, and how many steps there are."""
        group = self.get("group_size", 1)
        rows = self.get("minibatches responses") or self.get("minibatches prompts", 0) * group
        responses = self.get("problems_per_step responses")
        if share := self.get("problems_per_step responses per process"):
            accumulation = self.get("minibatches accumulation", 1)
            rows = share * self.processes * accumulation
            responses = responses or share * self.processes * self.get("problems_per_step batches", accumulation)
            if self.processes == 1:
                self.result.to_set.append("problems_per_step: is for one process there; --processes N counts for N")
        if responses:
            self.set("problems_per_step", max(1, responses // group))
            if responses % group:
                self.differs("problems_per_step responses", f"{responses} responses are not whole groups of {group}")
        problems = self.result.settings.get("problems_per_step", 0)
        if problems < 1:
            raise ConfigError(f"{self.framework.title}: a step has no responses, by the sizes of batches in the file")
        self.result.settings.setdefault("minibatches", 1)
        if rows > 0:
            wanted = min(max(1, round(problems * group / rows)), problems)
            count = next(each for each in range(wanted, 0, -1) if problems % each == 0)
            self.set("minibatches", count)
            if count * rows != problems * group:
                text = f"{problems * group} rollouts in steps of {rows} there; here {count} steps, each of whole groups"
                self.result.differs.append(f"minibatches: {text}")
        if self.get("minibatches passes", 1) != 1:
            self.result.missing.append(f"{self.origins['minibatches passes']}: each batch is trained on once")
        if self.get("steps optimizer steps", 0) > 0:
            self.set("steps", max(1, self.get("steps optimizer steps") // self._optimizer_steps))
        if self.result.settings.get("steps", 0) < 1:
            self.result.settings.pop("steps", None)
            self.get("steps epochs")
            end = self.origins.get("steps") or self.origins.get("steps epochs", "the file names no end")
            self.result.to_set.append(f"steps: {end}; steps = epochs x problems / problems_per_step ({problems})")

    @property
    def _optimizer_steps(self) -> int:
        """Of each step."""
        return self.result.settings["minibatches"]

    def _algorithm(self) -> Kind:
        traits, clip = self._traits(), self._clip()
        place, coefficient = self._kl()
        resamples = bool(self.get("algorithm.max_resamples switch")) or self._overlong() > 0

        def distance(kind: Kind) -> int:
            compares = kind.advantage.startswith("group") or kind.advantage == "leave_one_out"
            return (
                32 * (compares and self.get("group_size", 1) < 2)
                + 16 * (kind.advantage != traits["advantage"])
                + 8 * (kind.loss != traits["loss"])
                + 4 * (kind.mean != traits["mean"])
                + 2 * (bool(coefficient) and kind.kl != place)
                + (resamples and kind.name != "dapo")
            )

        kind = min(kinds(), key=distance)
        for trait, theirs in traits.items():
            if theirs != (ours := getattr(kind, trait)):
                there = meanings().get(theirs, theirs)
                slots = f"algorithm.name {trait}", "algorithm.name loss and mean"
                slot = slots[trait != "advantage" and slots[0] not in self.origins]
                self.differs(slot, f"{trait} there: {there}; of {kind.name} here: {meanings()[ours]}")
        estimator = self.get(f"algorithm.kl_estimator {place}") or self.get("algorithm.kl_estimator")
        if coefficient and (kind.kl, kind.estimator or estimator) != (place, estimator):
            there, here = f"{meanings()[place]}, {estimator}", f"{meanings()[kind.kl]} {kind.estimator}".strip()
            self.result.differs.append(f"KL with coefficient {coefficient}: there {there}; of {kind.name} here {here}")
        self._algorithm_block(kind, clip, {"kl_coefficient": coefficient, "kl_estimator": estimator})
        return kind

    def _traits(self) -> dict[str, str]:
        loss, _, mean = self.get("algorithm.name loss and mean", "clip tokens").partition(" ")
        advantage = self.get("algorithm.name advantage")
        if advantage == "group_std" and not self.get("algorithm.name std", True):
            advantage = "group_mean"
        if self.get("algorithm.name ratio", "token") == "sequence":
            loss = "sequence_clip"
        loss, mean = self.get("algorithm.name loss", loss), self.get("algorithm.name mean", mean or "tokens")
        return {"advantage": advantage, "loss": loss, "mean": mean}

    def _kl(self) -> tuple[str, float]:
        """Return where the KL term is there, and its coefficient."""
        slot = "algorithm.kl_coefficient"
        places = [each for each in ("loss", "reward") if self.get(f"{slot} {each} switch")]
        if len(places) > 1:
            self.differs(f"{slot} reward", "a second KL term, in the reward; one term is taken here")
        place = self.get(f"{slot} place", next(iter(places), ""))
        return place, float(self.get(f"{slot} {place}", self.get(slot, 0.0)) if place else 0.0)

    def _clip(self) -> tuple[float, float]:
        slots = "algorithm.clip_lower", "algorithm.clip_upper"
        lower, upper = self.get("algorithm.clip_lower pair", [self.get(slot, 0.2) for slot in slots])
        if self.framework.absolute_weights and self._traits()["loss"] == "weighted":
            text = "the largest weight itself there, its distance from 1 here; neither has a lower bound"
            self.differs(slots[1], text)
            return 1.0, upper - 1
        return lower, upper

    def _overlong(self) -> float:
        """Return the tokens at the end of the length limit that cost reward."""
        slot = "algorithm.overlong_buffer"
        return self.get(f"{slot} tokens", 0) if self.get(f"{slot} switch", True) else 0

    def _algorithm_block(self, kind: Kind, clip: tuple[float, float], kl: Mapping[str, Any]) -> None:
        fields, prefix = _FIELDS[kind.name], "algorithm."
        wanted: dict[str, Any] = {"name": kind.name, **kind.settings}
        for slot, value in self.slots.items():
            if slot.startswith(prefix) and " " not in slot:
                wanted[slot.removeprefix(prefix)] = value
        wanted |= {"clip_lower": clip[0], "clip_upper": clip[1]}
        if "clip" in fields:
            wanted["clip"] = wanted.pop("clip_lower")
            if wanted.pop("clip_upper") != clip[0]:
                self.differs("algorithm.clip_upper", f"{kind.name} has one bound for both sides here, {clip[0]}")
        if kl["kl_coefficient"] or "kl_coefficient" in fields:
            wanted |= kl if "kl_estimator" in fields else {"kl_coefficient": kl["kl_coefficient"]}
        wanted.pop("kl_estimator" if "kl_estimator" not in fields else "", None)
        batches = self.get("algorithm.max_resamples batches", 0)
        wanted["max_resamples"] = (batches - 1 if batches else 3) if self.get("algorithm.max_resamples switch") else 0
        wanted["overlong_buffer"] = min(
            1.0, self._overlong() / self.result.settings.get("sampler.max_new_tokens", math.inf)
        )
        wanted["correction"] = self._correction()
        for name, value in wanted.items():
            self._keep_or_report(f"{prefix}{name}", value, name in fields, kind.name)

    def _keep_or_report(self, path: str, value: Any, is_used: bool, owner: str) -> None:
        """Set a setting that the choice `owner` has; report one that it does not have, where it has an effect there."""
        if value is not None and is_used:
            self.set(path, value)
        elif value not in (None, 0, False) and (path not in self.origins or path in self.given or path in self.notes):
            note = f": {self.notes.pop(path)}" if path in self.notes else ""
            text = self.origins.get(path, f"{path} = {shown(value)}")
            self.result.missing.append(f"{text}: {owner} has no such setting here{note}")

    def _correction(self) -> dict[str, Any] | None:
        """Return the importance sampling between sampler and trainer."""
        slot = "algorithm.correction"
        mode, level = self.get(f"{slot} mode"), self.get(f"{slot} level", "none")
        is_on = self.get(f"{slot} switch", True) and (mode or level != "none")
        if not is_on or self.result.settings.get("sampler.engine.name") != "vllm":  # there it is for vLLM alone
            self.notes.pop(f"{slot} upper", None)
            return None
        if self.get("sampler.top_p", 1) < 1:
            self.result.missing.append("importance sampling between sampler and trainer: not with top_p below 1")
            return None
        if mode != "seq-mask-tis":
            self.notes.pop(f"{slot} mode", None)
        upper, lower = self.get(f"{slot} upper", 2.0), self.get(f"{slot} lower", 0.0)
        if isinstance(upper, str):
            lower, upper = (float(part) for part in upper.split("_"))
        elif isinstance(upper, list):
            lower, upper = cast("list[float]", upper)
        mode = mode or (f"{level}_mask" if lower else f"{level}_truncate")
        mode = {"tis": "token_truncate", "icepop": "token_mask", "seq-mask-tis": "geometric_mask"}.get(mode, mode)
        level, _, what = mode.partition("_")
        if what == "mask":
            return {"name": "masked", "level": level, "lower": lower, "upper": upper}
        if lower:
            self.differs(f"{slot} upper", "a truncated factor has no lower bound here")
        return {"name": "truncated", "level": level, "upper": upper}

    def _optimizer(self) -> None:
        if self.get("optimizer.betas first"):
            self.set("optimizer.betas", [self.get("optimizer.betas first"), self.get("optimizer.betas second")])
        if rate := self.get("optimizer.final_fraction rate"):
            self.set("optimizer.final_fraction", rate / self.get("optimizer.learning_rate"))
        warmup, share = self.get("optimizer.warmup_steps", 0), self.get("optimizer.warmup_steps share", 0)
        if 0 < warmup < 1:
            warmup, share = 0, warmup
        warmup = max(warmup, self.get("optimizer.warmup_steps steps", 0) * self._optimizer_steps)
        if share and not warmup:
            warmup = round(share * self.result.settings.get("steps", 0) * self._optimizer_steps)
            if "steps" not in self.result.settings:
                self.result.to_set.append(f"optimizer.warmup_steps: {share} of all optimizer steps there")
        self.set("optimizer.warmup_steps", int(warmup))

    def _intervals(self) -> None:
        for path in ("evaluation.every", "checkpoint.every"):
            count = self.get(f"{path} interval", 0)
            if counted := self.get(f"{path} optimizer steps", 0):
                count = max(1, int(counted // self._optimizer_steps))
            if count > 0 or path == "evaluation.every":
                self.set(path, max(0, count))

    def _in_order(self) -> None:
        """Take out what the chosen schedule and engine do not have, and bring the rest into the order of a recipe."""
        settings = self.result.settings
        for block in ("schedule", "sampler.engine"):
            name = settings[f"{block}.name"]
            for path in [path for path in settings if path.startswith(f"{block}.")]:
                if path.removeprefix(f"{block}.") not in _FIELDS[name]:
                    value = settings.pop(path)
                    self._keep_or_report(path, value if path in self.given else None, False, name)
        order = list(TrainConfig.model_fields)
        names = sorted(settings, key=lambda path: (order.index(path.split(".")[0]), not path.endswith(".name")))
        self.result.settings = {path: settings[path] for path in names}

    def _notes(self, kind: Kind) -> None:
        """Report the differences that the table has for settings in effect, and those that no setting names."""
        for slot, note in self.notes.items():
            path = slot.partition(" ")[0]
            if slot in self.given or path in self.result.settings or path.startswith("algorithm.clip"):
                self.differs(slot, note)
        self.result.differs += [
            each.text for each in self.framework.notes if {"", kind.advantage}.intersection(each.of)
        ]

    def _without_effect(self) -> None:
        """Report what the file says and nothing above has looked at."""
        unused = self.given - self.read - {*self.result.settings}
        reported = " ".join((*self.result.differs, *self.result.missing))
        for slot in sorted(unused):
            if self.origins[slot] not in reported:
                self.result.missing.append(f"{self.origins[slot]}: has no effect here beside the other settings")

    def _loadable(self) -> Imported:
        """Take out, and report, values that a recipe cannot have."""
        settings = self.result.settings
        while True:
            try:
                load(TrainConfig, None, [Override(path, value, "command line") for path, value in settings.items()])
                break
            except ConfigError as error:
                place = str(error).split(" = ")[0].replace(": ", ".")
                named = [path for path in settings if f"{place}.".startswith(f"{path}.")]
                named += [path for path in settings if f"{path} " in str(error)]
                if not named:
                    raise
                found = named[0]
                self.result.missing.append(f"{self.origins.get(found, found)}: {error}")
                del settings[found]
        for entries in (self.result.differs, self.result.missing):
            entries[:] = dict.fromkeys(entries)  # a setting that sets two here is reported once
        return self.result
