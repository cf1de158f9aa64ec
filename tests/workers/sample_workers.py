"""Workers of the tests, where processes of their own can import them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import numpy as np

from autoclave.core import FaultError
from autoclave.workers import Batch, Dispatch, register


class Refusal(Exception):
    """Cannot be built from what it is pickled with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class Clerk:
    """Does small things, and remembers what happened to it."""

    def __init__(self, greeting: str = "hello") -> None:
        self._greeting = greeting
        self._calls: list[str] = ["made"]

    def rank(self) -> int:
        return int(os.environ.get("RANK", "0"))

    # --- Arguments and results

    @register(Dispatch.ONE_TO_ALL)
    def greet(self, name: str) -> str:
        self._calls.append("greet")
        return f"{self._greeting} {name}"

    @register(Dispatch.ALL_TO_LIST)
    def ranks(self) -> tuple[int, int]:
        return self.rank(), os.getpid()

    @register(Dispatch.ONE_TO_ALL)
    def give(self, value: object) -> object:
        return value

    @register(Dispatch.EACH)
    def give_each(self, value: object) -> object:
        return value

    @register(Dispatch.ONE_TO_ALL)
    def blank(self, size: int) -> np.ndarray:
        return np.full(size, 7.0)

    @register(Dispatch.ALL_TO_LIST)
    def doubled(self, array: np.ndarray) -> float:
        array *= 2  # what arrives is the worker's own
        return float(array.sum())

    @register(Dispatch.DATA_PARALLEL)
    def mark(self, batch: Batch) -> Batch:
        return batch.with_rows(rank=np.full(len(batch), self.rank()), doubled=batch.rows["name"] * 2)

    @register(Dispatch.DATA_PARALLEL)
    def count(self, batch: Batch) -> dict[str, int]:
        return {"rows": len(batch)}

    @register(Dispatch.DATA_PARALLEL)
    def lose_a_row(self, batch: Batch) -> Batch:
        return batch.select(np.arange(len(batch) - 1))

    @register(Dispatch.MODEL_3D)
    def mark_3d(self, batch: Batch) -> Batch:
        return batch.with_rows(rank=np.full(len(batch), self.rank()))

    @register(Dispatch.EACH)
    def sign(self, paper: str, place: str) -> str:
        if paper == "forged":
            raise FaultError("no signature")
        return f"{paper} by {self.rank()} in {place}"

    @register(Dispatch.ONE_TO_ALL)
    def letters(self, count: int) -> list[str]:
        return [f"letter {number}" for number in range(count)]

    @register(Dispatch.ONE_TO_ALL)
    def join(self, here: str, there: str) -> bool:
        """Whether somebody comes to `there` while this is `here`; both are paths of files."""
        open(here, "w").close()
        deadline = time.monotonic() + 50
        while not os.path.exists(there) and time.monotonic() < deadline:
            time.sleep(0.005)  # until it is there
        return os.path.exists(there)

    @register(Dispatch.ONE_TO_ALL)
    def start_a_process(self) -> int:
        """Of those that live until they are killed."""
        self._helper = subprocess.Popen(["sleep", "600"])
        return self._helper.pid

    def unregistered(self) -> None: ...

    # --- Failures

    @register(Dispatch.ONE_TO_ALL)
    def fail(self, who: int) -> str:
        if self.rank() == who:
            raise FaultError("gradient norm = nan")
        return "fine"

    @register(Dispatch.ONE_TO_ALL)
    def refuse(self) -> None:
        raise Refusal(7, "no")

    @register(Dispatch.ONE_TO_ALL)
    def return_a_lock(self) -> object:
        return threading.Lock()

    @register(Dispatch.ONE_TO_ALL)
    def fail_while_others_wait(self, who: int) -> None:
        if self.rank() == who:
            raise FaultError("out of step")
        threading.Event().wait()

    @register(Dispatch.ONE_TO_ALL)
    def sleep(self, folder: str) -> None:
        """For longer than any test; a file in `folder` says that it has begun."""
        open(os.path.join(folder, str(self.rank())), "w").close()
        time.sleep(600)

    @register(Dispatch.ONE_TO_ALL)
    def answer_after(self, begun: threading.Event, go_on: threading.Event) -> str:
        begun.set()
        go_on.wait()
        return "answer"

    @register(Dispatch.ONE_TO_ALL)
    def die(self, who: int) -> None:
        if self.rank() == who:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    # --- Turns

    def onload(self) -> None:
        self._calls.append("onload")

    def offload(self) -> None:
        self._calls.append("offload")

    @register(Dispatch.ALL_TO_LIST)
    def calls(self) -> list[str]:
        return self._calls


class Summer:
    """Adds up over all ranks."""

    @register(Dispatch.ALL_TO_LIST)
    def total(self, amount: float) -> float:
        import torch
        import torch.distributed

        mine = torch.tensor(amount * (torch.distributed.get_rank() + 1))
        torch.distributed.all_reduce(mine)
        return mine.item()


class Unmade:
    def __init__(self) -> None:
        raise FaultError("no weights")
