"""A program: starts a worker that starts a process, says the numbers of both, and waits to be killed."""

from __future__ import annotations

import json
import signal
import sys

from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.workers.sample_workers import Clerk


def main() -> None:
    """Never returns."""
    group = WorkerGroup(ResourcePool("main", SpawnExecutor([()])), Clerk)
    (_, worker) = group.ranks().result()[0]
    sys.stdout.write(json.dumps([worker, group.start_a_process().result()]) + "\n")
    sys.stdout.flush()
    group.join("/dev/null", "/nowhere")  # it is in the middle of a call
    signal.pause()


if __name__ == "__main__":
    main()
