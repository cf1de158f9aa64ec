"""What compressed bytes hold is seen in bounded time and memory; what cannot be seen is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import time
import zipfile
import zlib
from collections.abc import Callable

import pytest

from autoclave.runtime.vault.compressed import Unexpandable, contents
from autoclave.runtime.vault.traces import found_in
from tests.runtime.test_vault import SPELLED, VALUE
from tests.runtime.web_service import PACKED

OUTER = ["gzip", "zip", "bz2", "xz", "deflate"]


@pytest.mark.parametrize("spelling", SPELLED)
@pytest.mark.parametrize("way", PACKED)
def test_a_value_is_found_in_each_encoding_and_compression(way: str, spelling: str):
    packed = PACKED[way](b"{} and " + SPELLED[spelling](VALUE) + b" and more" * 9)
    for whole in (packed, *(PACKED[outer](packed) for outer in OUTER)):
        assert any(found_in(content, {"s": VALUE}) for content in contents(whole))


@pytest.mark.parametrize("way", PACKED)
def test_what_is_damaged_or_cut_is_refused_or_is_not_compressed(way: str):
    packed = PACKED[way](f"the key is {VALUE}".encode())
    if way == "deflate":  # it has no mark, and half of it is any bytes
        assert list(contents(packed[:-3])) == []
        return
    for bad in (packed[: len(packed) // 2], packed[:-1]):
        with pytest.raises(Unexpandable, match=r"damaged|no end"):
            list(contents(bad))


def encrypted_zip() -> bytes:
    packed = bytearray(PACKED["zip"](b"secret"))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = packed.rindex(mark) + place
        packed[at] |= 1
    return bytes(packed)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"\x28\xb5\x2f\xfd" + bytes(20), "of a kind"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(20), "of a kind"),
        (encrypted_zip(), "encrypted"),
        (gzip.compress(b"x") + b"and more", "damaged"),
    ],
    ids=["zstd", "7z", "encrypted zip", "gzip with a tail"],
)
def test_what_cannot_be_expanded_is_refused(packed: bytes, why: str):
    with pytest.raises(Unexpandable, match=why):
        list(contents(packed))


def many_members() -> bytes:
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for number in range(10_001):
            archive.writestr(f"{number}", b"")
    return packed.getvalue()


def nested(times: int) -> bytes:
    content = b"x"
    for _ in range(times):
        content = gzip.compress(content)
    return content


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        (lambda: gzip.compress(bytes(100 << 20), 1), "expands too much"),
        (lambda: zlib.compress(bytes(100 << 20), 1), "expands too much"),
        (lambda: PACKED["deflate"](bytes(100 << 20)), "expands too much"),
        (lambda: bz2.compress(bytes(100 << 20)), "expands too much"),
        (lambda: lzma.compress(bytes(100 << 20), preset=0), "expands too much"),
        (lambda: PACKED["zip"](bytes(100 << 20)), "expands too much"),
        (lambda: gzip.compress(gzip.compress(bytes(100 << 20), 1)), "expands too much"),
        (lambda: gzip.compress(bytes(1 << 20)) * 40, "expands too much"),
        (many_members, "too many members"),
        (lambda: nested(5), "compressed too many times"),
    ],
    ids=range(10),
)
def test_bombs_are_refused_in_bounded_time(bomb: Callable[[], bytes], why: str):
    packed = bomb()
    began = time.process_time()
    with pytest.raises(Unexpandable, match=why):
        list(contents(packed))
    assert time.process_time() - began < 5
    assert list(contents(nested(4)))[-1] == b"x"


def test_texts_and_random_bytes_are_not_taken_for_compressed_ones():
    texts = [b'{"id": 1, "name": "x"}', b"data: {}\n\n" * 3, b"<html><body>hello", "ж日本語テキストです".encode()]
    texts += [
        b"BZhang and others",
        b"x\x9c is the mark",
        b"PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj",
        b"\x89PNG\r\n\x1a\n" + bytes(20),
    ]
    for text in texts:
        assert list(contents(text)) == []
    assert list(contents(os.urandom(1 << 16))) == []
