"""Two programs that take turns, each in a process of its own: the time of every step, and the peak of its memory.

A side is a function that is handed its work and a `Turn`. It waits for its turn before each step and tells what the
step took. Not a benchmark; those that compare whole programs use it.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

Times = dict[str, float]
"""Seconds by part."""


class Turn:
    """What a side holds of the pipe to the process that measures."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._started = self._cpu = 0.0

    def begin(self) -> None:
        """Wait until a step may be taken."""
        self._pipe.recv()
        self._started, self._cpu = time.perf_counter(), time.process_time()

    def end(self, times: Times) -> None:
        """Tell what the parts of the step took; `step` and `cpu` are added."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        whole = {"step": time.perf_counter() - self._started, "cpu": time.process_time() - self._cpu}
        self._pipe.send(times | whole)


class Side:
    """A process that takes steps, seen from outside."""

    def __init__(self, run: Callable[[Any, Turn], None], work: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(run, work, other))
        self._process.start()
        other.close()

    def step(self) -> Times:
        """Let it take a step; what that took. EOFError if the process has died."""
        self._pipe.send("step")
        return self._pipe.recv()

    def peaks(self) -> dict[str, float]:
        """The peaks of its memory in MiB, once it has taken its last step."""
        peaks = self._pipe.recv()
        self._process.join()
        return peaks

    def close(self) -> None:
        """End the process if it still lives."""
        self._process.terminate()
        self._process.join()


def _run(run: Callable[[Any, Turn], None], work: Any, pipe: Connection) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    try:
        run(work, Turn(pipe))
    except BaseException:  # noqa: BLE001  it ends the process
        traceback.print_exc()
        os._exit(1)  # threads that it left would keep the process, and who waits for its step
    peaks = {"resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if torch.cuda.is_available():
        peaks["cuda_mb"] = torch.cuda.max_memory_allocated() / 2**20
    pipe.send(peaks)


@contextmanager
def open_sides(sides: Mapping[str, Callable[[Any, Turn], None]], work: Any):
    """A process for each side; they end with the block."""
    opened = {name: Side(run, work) for name, run in sides.items()}
    try:
        yield opened
    finally:
        for side in opened.values():
            side.close()
