"""The worker group that samples, and the `Sampler` that others reach it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from torch import Tensor

from autoclave.core import Completion
from autoclave.rollout import Deliver, Engine, Request
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.memory import MeasuresMemory


class SamplerWorker(MeasuresMemory):
    """Holds an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @register(Dispatch.STREAM)
    def generate(self, requests: Sequence[Request], deliver: Deliver) -> None:
        """Sample `requests`, handing over each completion as it is done."""
        self._engine.generate(requests, deliver)

    @register(Dispatch.ONE_TO_ALL)
    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Sample with `weights`, called `version`, from now on."""
        self._engine.update_weights(version, weights)


class WorkerSampler:
    """A `Sampler` on a group of sampler workers."""

    def __init__(self, group: WorkerGroup[SamplerWorker]) -> None:
        self._group = group

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """Ask for all `requests`; if sampling fails, every future that is not done gets the exception."""
        futures: list[Future[Completion]] = [Future() for _ in requests]

        def fail_the_rest(call: Future[None]) -> None:
            error = call.exception() if not call.cancelled() else RuntimeError("sampling was cancelled")
            for future in futures:
                if not future.done():
                    future.set_exception(error or RuntimeError("the engine returned without this completion"))

        call = self._group.generate(requests, lambda index, completion: futures[index].set_result(completion))
        call.add_done_callback(fail_the_rest)
        return futures
