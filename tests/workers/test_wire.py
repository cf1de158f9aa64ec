"""Values arrive in another process as they were, with large arrays in shared memory and tensors as tensors."""

from __future__ import annotations

import gc
import os
import threading
from multiprocessing import Pipe

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.workers.spawn_executor import Channel
from autoclave.workers.wire import ALIGNMENT, IN_BAND_BYTES, Parcel, pack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@given(PLAIN)
def test_plain_values_arrive_as_they_were(value):
    assert pack(value).fetch() == value
    assert Parcel.of(pack(value)).fetch() == value


@pytest.mark.parametrize("size", [0, 1, IN_BAND_BYTES // 8, IN_BAND_BYTES // 8 + 1, 100_003])
def test_arrays_of_any_size_arrive_writable(size):
    sent = {"first": np.arange(size), "second": np.arange(size)[::-1], "third": np.arange(size, dtype=np.int8)}
    for arrived in (pack(sent).fetch(), Parcel.of(pack(sent)).fetch()):
        assert all((arrived[name] == sent[name]).all() and arrived[name].dtype == sent[name].dtype for name in sent)
        assert all(array.flags.writeable for array in arrived.values())


def test_what_the_receiver_writes_nobody_else_sees():
    parcel = Parcel.of(pack(np.zeros(100_000)))
    first, second = parcel.fetch(), parcel.fetch()
    first[:] = 1
    assert second.sum() == 0
    assert parcel.fetch().sum() == 0


def test_arrays_stand_aligned_in_shared_memory():
    arrays = Parcel.of(pack([np.zeros(100_001, dtype=np.int8), np.ones(50_000)])).fetch()
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (300, 200)])
def test_tensors_of_every_type_and_shape_arrive(dtype, shape):
    sent = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    arrived = pack(sent).fetch()
    assert (arrived.dtype, arrived.shape) == (dtype, shape)
    assert torch.equal(arrived.float(), sent.float())


def test_tensors_arrive_without_gradient_and_by_their_own_memory():
    weight = torch.nn.Parameter(torch.ones(4, 6))
    arrived = pack({"whole": weight, "turned": weight.T, "part": weight[:, 2]}).fetch()
    assert not any(tensor.requires_grad for tensor in arrived.values())
    assert [tuple(tensor.shape) for tensor in arrived.values()] == [(4, 6), (6, 4), (4,)]
    arrived["whole"].zero_()
    assert weight.sum() == 24


@pytest.mark.parametrize(
    "value", [lambda: None, threading.Lock(), type("Local", (), {})()], ids=["lambda", "lock", "local"]
)
def test_what_cannot_be_sent_is_named_with_the_fix(value):
    with pytest.raises(TypeError, match=r"cannot be sent to another process.*importable by name"):
        pack(value)


def test_an_end_in_the_middle_of_a_frame_is_an_end():
    ends = Pipe()
    os.write(ends[0].fileno(), (1000).to_bytes(4, "big") + b"half")
    ends[0].close()
    with pytest.raises(EOFError):
        Channel(ends[1]).receive()
    ends[1].close()


def test_frames_cross_a_socket_in_order_with_their_memory():
    ends = Pipe()
    here, there = map(Channel, ends)
    parcels = [Parcel.of(pack(value)) for value in (np.arange(100_000), "small", np.ones(70_000))]
    here.send("first", parcels)
    here.send("second", parcels[1:2])
    content, (array, text, ones) = there.receive()
    assert (content, array.fetch().sum(), text.fetch(), ones.fetch().sum()) == ("first", 4999950000, "small", 70_000)
    content, (text,) = there.receive()
    assert (content, text.fetch()) == ("second", "small")
    ends[0].close()
    with pytest.raises(EOFError):
        there.receive()
    ends[1].close()


def test_shared_memory_is_given_back_when_nobody_refers_to_it():
    before = open_descriptors()
    parcel = Parcel.of(pack(np.zeros(1 << 20)))
    array = parcel.fetch()
    assert open_descriptors() > before
    del parcel
    assert array.sum() == 0  # it lives as long as its last reader
    del array
    assert open_descriptors() == before
