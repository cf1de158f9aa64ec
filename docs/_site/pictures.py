"""Draw the pictures of docs/concepts: `python docs/_site/pictures.py` writes them, as SVG.

The timelines of schedules are simulated, by `autoclave.planning`; the states of an action are those of the runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from autoclave.core.timeline import Role, union  # noqa: E402
from autoclave.planning.simulation import ScheduleName, ScheduleRun, Split, simulate  # noqa: E402
from autoclave.runtime.states import FOLLOWING, ActionState  # noqa: E402
from benchmarks.workloads import RewardTimes, Workload, generate  # noqa: E402

STYLE = """<style>
.picture { --ink: #24292f; --quiet: #57606a; --paper: #f6f8fa; --a: #b6c8f0; --b: #f3d19c; --c: #b5dcc0;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  .picture { --ink: #e6edf3; --quiet: #a5b0bb; --paper: #21262d; --a: #34508f; --b: #7a5716; --c: #2b6440;
    --bad: #ff8f85; }
}
</style>"""
"""Colours by the system's theme, as GitHub shows a picture; on the site those of the page (`hooks.py`)."""


@dataclass
class Picture:
    """Shapes on a canvas 760 wide, and what a reader hears instead of them."""

    title: str
    height: int
    shapes: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", *, kind: str = "ink", bold: bool = False):
        weight = ' font-weight="600"' if bold else ""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="var(--{kind})"{weight}>{escape(text)}</text>'
        )

    def area(self, x: float, y: float, width: float, height: float, title: str):
        self._rectangle(x, y, width, height, 'fill="none" stroke="var(--quiet)" stroke-dasharray="4 4"')
        self.text(x + 12, y + 21, title, "start", bold=True)

    def box(self, x: float, y: float, width: float, height: float, *lines: str, fill: str = "paper", kind: str = "ink"):
        """Draw a box; the first line in it is its name."""
        self._rectangle(x, y, width, height, f'fill="var(--{fill})" stroke="var(--{kind})"')
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * number, line, bold=number == 0)

    def bar(self, x: float, y: float, width: float, height: float, fill: str):
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="var(--{fill})"/>'
        )

    def arrow(self, *points: tuple[float, float], kind: str = "ink"):
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self.shapes.append(f'<path d="{path}" fill="none" stroke="var(--{kind})" marker-end="url(#to-{kind})"/>')

    def _rectangle(self, x: float, y: float, width: float, height: float, style: str):
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" {style}/>')

    def svg(self) -> str:
        """Return the file."""
        markers = "".join(
            f'<marker id="to-{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="var(--{kind})"/></marker>'
            for kind in ("ink", "bad")
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {self.height}" width="760" '
            f'height="{self.height}" role="img" class="picture" font-family="system-ui, sans-serif" font-size="13">\n'
            f"<title>{escape(self.title)}</title>\n{STYLE}\n"
        )
        return head + "\n".join([f"<defs>{markers}</defs>", *self.shapes, "</svg>"]) + "\n"


def architecture() -> Picture:
    picture = Picture("A sampler, a judge and a trainer in a circle; an agent, a session and its resources below", 500)
    picture.area(10, 10, 740, 325, "Training: a driver calls collect, learn and publish in the order of a schedule")
    picture.box(30, 110, 160, 66, "Sampler", "engines in processes,", "on CPUs or GPUs")
    picture.box(300, 110, 160, 66, "Judge", "holds tests and", "expected answers")
    picture.box(570, 110, 160, 66, "Trainer", "actor, critic,", "reference")
    picture.arrow((190, 143), (300, 143))
    picture.text(245, 135, "responses")
    picture.arrow((460, 143), (570, 143))
    picture.text(515, 135, "rewards")
    picture.arrow((650, 110), (650, 75), (110, 75), (110, 110))
    picture.text(380, 67, "publish: weights, from process to process")
    picture.box(30, 245, 160, 66, "Problems", "your files, public sets,", "or generated")
    picture.arrow((110, 245), (110, 176))
    picture.text(118, 215, "prompts", "start")
    picture.box(300, 245, 160, 66, "Sandbox cells", "one for each program,", "a process for each test", fill="b")
    picture.arrow((345, 176), (345, 245))
    picture.text(337, 215, "program, input", "end")
    picture.arrow((415, 245), (415, 176))
    picture.text(423, 215, "output", "start")
    picture.box(570, 245, 160, 66, "Run folder", "metrics, rollouts,", "checkpoints, report")
    picture.arrow((650, 176), (650, 245))
    picture.area(10, 360, 740, 130, "Actions of agents: the runtime")
    picture.box(30, 400, 160, 66, "Agent or model", "proposes actions")
    picture.box(300, 400, 160, 66, "Session", "grants, journal,", "pre-images")
    picture.box(570, 400, 160, 66, "Resources", "files, databases,", "services")
    picture.arrow((190, 433), (300, 433))
    picture.text(245, 425, "proposals")
    picture.arrow((460, 425), (570, 425))
    picture.text(515, 418, "changes")
    picture.arrow((570, 445), (460, 445))
    picture.text(515, 461, "undo")
    picture.arrow((380, 400), (380, 311))
    picture.text(388, 352, "commands and code", "start")
    return picture


def two_cells() -> Picture:
    picture = Picture(
        "Left, a program beside what decides on it; right, a program and test code in cells of their own", 420
    )
    picture.area(10, 10, 260, 400, "One process")
    picture.box(60, 50, 190, 50, "Program", "of the model", fill="b")
    for y, title, line in (
        (150, "Expected answers", "read from memory or files"),
        (235, "Comparison", "its functions are replaced"),
        (320, "Result", "exit code 0, forged report"),
    ):
        picture.box(60, y, 190, 54, title, line)
        picture.arrow((60, 75), (32, 75), (32, y + 27), (60, y + 27), kind="bad")
    picture.text(155, 132, "can reach", kind="bad")
    picture.area(290, 10, 460, 400, "Two cells")
    picture.box(425, 50, 190, 66, "Judge", "tests, expected answers,", "comparison, clocks")
    picture.area(305, 225, 200, 130, "Cell 1")
    picture.box(320, 262, 170, 70, "Program", "of the model", fill="b")
    picture.area(535, 225, 200, 130, "Cell 2")
    picture.box(550, 262, 170, 70, "Test code", "candidate is a proxy")
    picture.arrow((445, 116), (385, 262))
    picture.text(408, 155, "input,", "end")
    picture.text(400, 172, "arguments", "end")
    picture.arrow((425, 262), (480, 116))
    picture.text(463, 200, "output", "start")
    picture.arrow((555, 116), (615, 262))
    picture.arrow((655, 262), (590, 116))
    picture.text(616, 155, "calls and results,", "start")
    picture.text(624, 172, "as data", "start")
    picture.text(520, 380, "Nothing is shared: no process, user, file or memory.")
    picture.text(520, 398, "What leaves a cell is compared, never executed.")
    return picture


def schedules() -> Picture:
    """Draw simulated runs of six iterations on 4 devices, each on its fastest split, on one scale."""
    workload = Workload(
        "picture",
        RewardTimes(14.0, growth=0.2, deviation=0.5, shortest=2.0, longest=40.0),
        median_tokens=1500,
        groups=16,
        group_size=4,
        iterations=6,
    )
    profile = replace(generate(workload, 7), slots=16)
    apart = [Split(samplers, 4 - samplers) for samplers in (1, 2, 3)]
    runs = [
        (name, *min(((split, simulate(profile, name, split, max_staleness=2)) for split in splits), key=_seconds))
        for name in ScheduleName
        for splits in ([Split.time_sharing(4)] if name is ScheduleName.SYNCHRONOUS else apart,)
    ]
    picture = Picture(
        "Bars of sampler, judge and trainer over time, for each of the four schedules", 62 + 108 * len(runs)
    )
    scale = 640 / max(run.ends[-1] for *_, run in runs)
    for number, (name, split, run) in enumerate(runs):
        top = 10 + 108 * number
        picture.text(10, top + 14, name.value, "start", bold=True)
        devices = "4 devices take turns" if split.is_shared else f"{split.samplers} sample, {split.trainers} train"
        seconds = f"{run.ends[-1] / len(run.ends):.0f} s per iteration"
        picture.text(750, top + 14, f"{devices}; {seconds}", "end", kind="quiet")
        for row, role in enumerate((Role.SAMPLER, Role.JUDGE, Role.TRAINER)):
            y = top + 24 + 24 * row
            picture.text(10, y + 14, role.value, "start", kind="quiet")
            for iteration in range(len(run.ends)):
                fill = "abc"[iteration % 3]
                for start, end in union(span.interval for span in run.of(role, iteration)):
                    overlaps = role is not Role.TRAINER and name in ("one_off_pipeline", "asynchronous")
                    lane, height = (9 * (iteration % 2), 9) if overlaps else (0, 18)
                    picture.bar(70 + scale * start, y + lane, scale * (end - start), height, fill)
        for end in run.ends:
            picture.bar(70 + scale * end - 1, top + 70, 2, 22, "ink")
    y = 34 + 108 * len(runs)
    for number in range(3):
        picture.bar(10 + 120 * number, y - 11, 14, 14, "abc"[number % 3])
        picture.text(30 + 120 * number, y, f"iteration {number}, {number + 3}", "start", kind="quiet")
    picture.bar(420, y - 12, 2, 16, "ink")
    picture.text(430, y, "weights are published", "start", kind="quiet")
    return picture


def _seconds(candidate: tuple[Split, ScheduleRun]) -> float:
    return candidate[1].ends[-1]


def action() -> Picture:
    picture = Picture("States of an action, from proposed to committed or undone", 430)
    state = ActionState
    places = {
        state.PROPOSED: (20, 70),
        state.APPROVED: (170, 70),
        state.EXECUTING: (320, 70),
        state.EXECUTED: (470, 70),
        state.COMMITTED: (620, 70),
        state.READ: (20, 160),
        state.FAILED: (170, 160),
        state.IN_DOUBT: (320, 160),
        state.UNDOING: (470, 160),
        state.REDONE: (620, 160),
        state.UNDO_FAILED: (320, 340),
        state.UNDO_IN_DOUBT: (320, 250),
        state.UNDONE: (470, 250),
        state.REDOING: (620, 250),
    }
    fills = {state.EXECUTED: "c", state.REDONE: "c", state.UNDONE: "a", state.IN_DOUBT: "b", state.UNDO_IN_DOUBT: "b"}
    for each, (x, y) in places.items():
        picture.box(x, y, 120, 40, each.value, fill=fills.get(each, "paper"))
    for source, target in _shown(places):
        (x, y), (to_x, to_y) = places[source], places[target]
        right, down = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        start = (x + 60 + 60 * right, y + 20 + (20 * down if not right else 8 * down))
        end = (to_x + 60 - 60 * right, to_y + 20 - (20 * down if not right else 8 * down))
        picture.arrow(start, end)
    for y in (262, 360):  # from undoing
        picture.arrow((470, 188), (455, 188), (455, y), (440, y))
    picture.bar(320, 44, 300, 3, "quiet")
    picture.text(470, 34, "pre-images are kept until the commit")
    picture.text(155, 34, "nothing has happened yet", kind="quiet")
    picture.text(380, 412, "The journal has each state before the next step begins.", kind="quiet")
    return picture


def _shown(places: dict[ActionState, tuple[int, int]]) -> Iterator[tuple[ActionState, ActionState]]:
    """Yield the transitions between neighbours, without those that are rare."""
    rare = {(ActionState.IN_DOUBT, ActionState.UNDONE), (ActionState.UNDOING, ActionState.UNDO_IN_DOUBT)}
    for source, following in FOLLOWING.items():
        for target in sorted(following):
            (x, y), (to_x, to_y) = places[source], places[target]
            if abs(x - to_x) <= 150 and abs(y - to_y) <= 90 and (source, target) not in rare:
                yield source, target


def episode() -> Picture:
    picture = Picture(
        "An episode: turns of the policy and of the environment, the end state, a grader, the reward", 390
    )
    picture.box(20, 60, 130, 60, "Start", "item and seed")
    picture.box(210, 60, 150, 60, "Policy", "samples a turn", fill="a")
    picture.box(210, 190, 150, 60, "Environment", "sealed workspace", fill="b")
    picture.arrow((150, 90), (210, 90))
    picture.arrow((250, 120), (250, 190))
    picture.text(242, 160, "action", "end")
    picture.arrow((320, 190), (320, 120))
    picture.text(328, 160, "observation", "start")
    picture.text(285, 45, "at most as many turns as the task says", kind="quiet")
    picture.box(430, 190, 140, 60, "End state", "declared files,", "as data")
    picture.arrow((360, 220), (430, 220))
    picture.box(600, 190, 140, 60, "Grader", "fresh cells")
    picture.arrow((570, 220), (600, 220))
    picture.box(600, 60, 140, 60, "Reward", "or no verdict")
    picture.arrow((670, 190), (670, 120))
    picture.text(670, 270, "no policy was there", kind="quiet")
    picture.text(20, 300, "Tokens of the rollout", "start", bold=True)
    parts = (("prompt", 100, "paper"), ("turn 1", 150, "a"), ("observation", 110, "paper"), ("turn 2", 150, "a"))
    x = 20.0
    for name, width, fill in (*parts, ("observation", 110, "paper"), ("turn 3", 100, "a")):
        picture.box(x, 312, width, 28, name, fill=fill)
        x += width
    picture.text(
        20, 365, "Turns are trained on, token for token as sampled; the rest is context.", "start", kind="quiet"
    )
    return picture


PICTURES = {each.__name__.replace("_", "-"): each for each in (architecture, two_cells, schedules, action, episode)}


def drawn() -> dict[Path, str]:
    """Return the content of each file."""
    return {ROOT / "docs" / "concepts" / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for path, content in drawn().items():
        path.write_text(content, encoding="utf-8")
