from __future__ import annotations

import pytest
import torch

from autoclave.workers.trainer import sources


@pytest.mark.parametrize("size", [0, 1, 1000, (16 << 20) + 1, (48 << 20) + 7])
def test_a_copy_has_every_byte_however_many_threads_share_it(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources.os, "sched_getaffinity", lambda _: range(8))
    given = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    around = torch.full((size + 2,), 255, dtype=torch.uint8)
    sources.copy(given, around[1:-1])
    assert torch.equal(around[1:-1], given)
    assert around[0] == around[-1] == 255
