"""A training run whose judge servers and their PostgreSQL are away for a while, beside an undisturbed one.

    python benchmarks/failover.py [--quick] [--json FILE]

Two servers share a database. When they have judged a third of the demo recipe's programs, all three are killed, and
start again after 120 s (10 s with --quick). `failover_lost`: responses without a verdict, or with another one than in
the undisturbed run. `failover_weights_equal`: 1 if the weights of both runs are equal bit by bit.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import torch
from harness import arguments, finish, print_environment, sized
from safetensors.torch import load_file

from autoclave.compose.training import train
from autoclave.config import TrainConfig, load, parse_override
from runs import QUICK, RECIPE, TINY

DATABASE_S = 60
SERVER = ("judge.workers=1", "judge.time_limit_range=[1,2]")
AWAY_S = (120.0, 10.0, 1.0)


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    few = "problems.train=64"
    sizes = sized(options, (*QUICK, few, "steps=6"), (*QUICK, few, "steps=3"), (*TINY, "steps=3"))
    finish("failover", failover(sizes, sized(options, *AWAY_S)), options.json)


def failover(sizes: Sequence[str], away_s: float) -> dict[str, float]:
    """Return `failover_lost` and what it is measured from."""
    logging.basicConfig(format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="autoclave-failover-") as name:
        folder = Path(name)
        service = Service(folder / "service")
        try:
            calm = Run(folder / "calm", sizes, service)
            judged = service.num_judged()
            disturbance = threading.Thread(target=service.disturb, args=(judged * 4 / 3, away_s), daemon=True)
            disturbance.start()
            disturbed = Run(folder / "disturbed", sizes, service)
            assert service.was_away, "the run ended before the servers were killed"
            disturbance.join()
        finally:
            service.close()
    lost = sum(one is None or one != other for one, other in zip(disturbed.verdicts, calm.verdicts, strict=True))
    print(f"{disturbed.count} responses, {lost} lost; {disturbed.seconds:.0f} s in place of {calm.seconds:.0f} s")
    is_equal = disturbed.weights.keys() == calm.weights.keys() and all(
        torch.equal(value, calm.weights[key]) for key, value in disturbed.weights.items()
    )
    return {"failover_lost": lost, "failover_weights_equal": int(is_equal), "failover_away_s": away_s}


class Run:
    """A finished run of the demo recipe, with the remote judge: its verdicts and weights."""

    def __init__(self, folder: Path, sizes: Sequence[str], service: Service) -> None:
        judge = f"judge={{backend: remote, remote: {{urls: [{', '.join(service.urls)}]}}}}"
        settings = (*sizes, "deterministic=true", judge)
        begun = time.monotonic()
        train(load(TrainConfig, RECIPE, [parse_override(text) for text in settings]).config, folder)
        self.seconds = time.monotonic() - begun
        self.verdicts: list[Any] = []
        for path in sorted((folder / "rollouts").glob("step-*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                self.verdicts += [json.loads(line)["verdict"]["status"] for line in file]
        self.weights = load_file(folder / "model" / "model.safetensors")

    @property
    def count(self) -> int:
        return len(self.verdicts)


class Service:
    """Two judge servers in processes of their own, on one PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings(action="ignore"):  # it says so where XDG_RUNTIME_DIR is not set
            import pgserver

        (folder / "data").mkdir(parents=True)
        self._programs: ModuleType = pgserver
        self._data = folder / "data"
        self._database = pgserver.PostgresServer(self._data, cleanup_mode=None)
        self._ports = [free_port(), free_port()]
        self._log = (folder / "log").open("w")
        self._servers: list[subprocess.Popen[str]] = []
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self.was_away = False
        self._sockets = self._database.get_postmaster_info().socket_dir
        self._start_servers()

    def disturb(self, after: float, away_s: float) -> None:
        """Kill everything once `after` programs are judged, and start it after `away_s`."""
        while self.num_judged() < after:
            time.sleep(0.02)
        for server in self._servers:
            with server:
                server.kill()
        self._control("-m", "immediate", "stop")
        self.was_away = True
        time.sleep(away_s)
        self._control("-l", str(self._database.log), "-o", '-h ""', "-o", f"-k {self._sockets}", "start")
        self._start_servers()

    def num_judged(self) -> float:
        texts = [httpx.get(f"{url}/v1/metrics", trust_env=False, timeout=30).text for url in self.urls]
        return sum(map(float, re.findall(r"^autoclave_verdicts_total\{.*\} ([0-9.e+]+)$", "".join(texts), re.M)))

    def close(self) -> None:
        for server in self._servers:
            with server:
                server.terminate()
        self._control("-m", "fast", "stop")
        self._log.close()

    def _start_servers(self) -> None:
        words = [sys.executable, "-m", "autoclave", "serve", f"store={self._database.get_uri()}", *SERVER]
        words.append(f"audit.file={self._data.parent / 'audit.jsonl'}")
        self._servers = [
            subprocess.Popen([*words, f"port={port}"], stdout=subprocess.PIPE, stderr=self._log, text=True)
            for port in self._ports
        ]
        for server in self._servers:
            assert server.stdout
            assert server.stdout.readline().startswith("Serving at "), Path(self._log.name).read_text()

    def _control(self, *words: str) -> None:
        self._programs.pg_ctl(["-w", "-t", str(DATABASE_S), *words], pgdata=self._data, user=self._database.system_user)


def free_port() -> int:
    with socket.socket() as seat:
        seat.bind(("127.0.0.1", 0))
        return seat.getsockname()[1]


if __name__ == "__main__":
    main()
