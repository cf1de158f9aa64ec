"""What a publish costs over a copy of the same bytes: from a trainer in one process to a Transformers model in another.

    python benchmarks/weight_sync.py [--quick] [--json FILE]

A publish is the whole of it as a run waits for it, without the probe: the driver asks the trainer, which writes its
weights into memory that both processes map, and then, through the pool of samplers, the sampler, whose model computes
with them when it answers. A copy is one memcpy, in the process of the trainer, of as many bytes that lie in one piece.
The two take turns; before each, what it reads is written to, as an optimizer would. After each publish both sides are
compared weight by weight (a sum of the bits of each).

Where vLLM is installed (`make test-vllm` makes .venv-vllm), the small model is published to an engine of vLLM too,
which copies what it is given; no goal is set for that. Its cache of prompts is emptied with it, and counts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from harness import arguments, compare, finish, print_environment, seconds, sized
from weight_sync_workers import Sampler, Trainer, VllmSampler, save

from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.spawn_executor import SpawnExecutor
from autoclave.workers.weights.publisher import Publisher

SHAPES = {
    "10m_float32": (torch.float32, {"hidden_size": 256, "num_hidden_layers": 11, "vocab_size": 4096}),
    "500m_bfloat16": (torch.bfloat16, {"hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 32768}),
}
TINY = {"tiny_float32": (torch.float32, {"hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 64})}
DEADLINE_S = 120.0


def main() -> None:
    options = arguments(__doc__ or "")
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers too: more threads than free cores only wait
    print_environment()
    figures: dict[str, float] = {}
    for name, (dtype, shape) in (TINY if options.tiny else SHAPES).items():
        if not (options.quick and name.startswith("500m")):
            sampler = partial(Sampler, dtype, shape)
            figures |= measure(name, dtype, shape, sampler, rounds=sized(options, 31, 15, 1))
    ratios = [value for name, value in figures.items() if name.startswith("weight_sync_over_memcpy_")]
    figures = {"weight_sync_over_memcpy": max(ratios), **figures}
    if find_spec("vllm") and not options.tiny:
        figures |= of_vllm(*SHAPES["10m_float32"])
    finish("weight_sync", figures, options.json)


def of_vllm(dtype: torch.dtype, shape: dict[str, int]) -> dict[str, float]:
    """The figures of a publish to vLLM."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), dtype, shape)
        return measure("10m_float32_vllm", dtype, shape, partial(VllmSampler, Path(folder)), rounds=15)


def measure(
    name: str,
    dtype: torch.dtype,
    shape: dict[str, int],
    make_sampler: Callable[[], Any],
    *,
    rounds: int,
    device: str = "cpu",
) -> dict[str, float]:
    """The figures of one model; both processes see the one GPU if `device` is one."""
    seen = ("0",) if device == "cuda" else ()
    pools = [ResourcePool(role, SpawnExecutor([seen])) for role in ("trainer", "sampler")]
    try:
        trainer = WorkerGroup(pools[0], partial(Trainer, dtype, shape, device))
        sampler = WorkerGroup(pools[1], make_sampler)
        publisher = Publisher(trainer, deadline_s=DEADLINE_S, verifies=False)
        samplers = SamplerPool([sampler])
        publisher.begin(0, [sampler])
        samplers.update_weights(0, publisher).result()
        times: dict[str, list[float]] = {"publish": [], "copy": []}

        def publish_as(version: int) -> None:
            publisher.write(version)
            samplers.update_weights(version, publisher).result()

        def publish() -> float:
            trainer.learn().result()
            version = (publisher.version or 0) + 1
            times["publish"].append(seconds(lambda: publish_as(version)))
            if len(times["publish"]) % 10 == 1 and sampler.digests().result() not in (None, trainer.digests().result()):
                raise SystemExit(f"{name}: the sampler does not hold what was published")
            return times["publish"][-1]

        def copy() -> float:
            times["copy"].append(trainer.copy_s().result())
            return times["copy"][-1]

        publish()  # the second slot, too, is warm then
        compared = compare(publish, copy, rounds=rounds)
        plain = median(times["publish"])
        publisher._verifies = True
        times["publish"].clear()
        for _ in range(rounds):
            publish()
        verified = median(times["publish"])
        times["publish"] = [plain]
        count = trainer.num_weights().result()
        samplers.close()
    finally:
        for pool in pools:
            pool.close()
    own, theirs = (1000 * median(found) for found in (times["publish"], times["copy"]))
    print(
        f"\n{name}: {count / 1e6:.1f} million weights, {count * dtype.itemsize / 1e6:.0f} MB, load {os.getloadavg()[0]}"
    )
    print(f"  publish {own:.2f} ms, copy {theirs:.2f} ms, publish over copy {compared}")
    print(f"  publish with digests {1000 * verified:.2f} ms")
    return {
        f"weight_sync_over_memcpy_{name}": compared.median,
        f"publish_ms_{name}": own,
        f"memcpy_ms_{name}": theirs,
        f"publish_with_digests_ms_{name}": 1000 * verified,
    }


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"{time.perf_counter() - started:.0f} s")
