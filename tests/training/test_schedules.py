"""A schedule orders the three stages and does nothing else."""

from __future__ import annotations

from itertools import islice

from autoclave.config import SynchronousConfig
from autoclave.rollout import Collection
from autoclave.training.items import ItemSource
from autoclave.training.learned import Learned
from autoclave.training.schedules import choose_schedule
from tests.training_parts import ScriptedSampler, completion, earned, item, request, settled


class RecordingStages:
    """Writes down what is asked, with scripted answers."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def collect(self, items, iteration: int) -> Collection:
        self.calls.append(("collect", [asked.id for asked in items], iteration))
        requests = [[request([2, 3], 0)] for _ in items]
        sampler = ScriptedSampler(lambda asked: completion())
        return Collection(items, requests, sampler, lambda asked, response: settled(earned(1.0)))

    def learn(self, groups) -> Learned:
        self.calls.append(("learn", [group.item.id for group in groups]))
        return Learned(groups, [], {}, [])

    def publish(self, version: int) -> None:
        self.calls.append(("publish", version))


def test_the_synchronous_schedule_samples_learns_and_publishes_in_turn_from_where_it_was():
    stages, source = RecordingStages(), ItemSource([item(name) for name in "abcd"], per_iteration=2, seed=0)
    schedule = choose_schedule(SynchronousConfig())
    iterations = list(islice(schedule(stages, source, 5), 2))
    names = [[asked.id for asked in source.at(iteration)] for iteration in (5, 6)]
    assert stages.calls == [
        ("collect", names[0], 5),
        ("learn", names[0]),
        ("publish", 6),
        ("collect", names[1], 6),
        ("learn", names[1]),
        ("publish", 7),
    ]
    assert [[group.item.id for group in learned.groups] for _, learned in iterations] == names


def test_an_iteration_is_yielded_when_its_weights_are_published():
    stages = RecordingStages()
    schedule = choose_schedule(SynchronousConfig())(stages, ItemSource([item()], per_iteration=1, seed=0), 0)
    next(schedule)
    assert stages.calls[-1] == ("publish", 1)
