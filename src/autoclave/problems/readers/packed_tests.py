"""The hidden tests of LiveCodeBench: base64 of zlib of a pickle that holds one text.

The pickle is never loaded. Its opcodes are read, and anything but those of one text is refused.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib

from autoclave.core.errors import DataError

PACKED_BYTES_LIMIT = 512 << 20
"""Most bytes that the packed text of one row may unpack to."""

_TEXT = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_FRAMING = frozenset({"PROTO", "FRAME"})
_MEMO = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})


def unpacked_text(packed: str, where: str, limit: int = PACKED_BYTES_LIMIT) -> str:
    """The text in base64 of zlib of a pickle of one text.

    Raises:
        DataError: not in this form, damaged, larger than `limit` bytes, or a pickle of anything but one text.
    """
    try:
        squeezed = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{where}: the packed tests are not base64 ({error})") from None
    return _only_text(_inflated(squeezed, where, limit), where)


def _inflated(squeezed: bytes, where: str, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(squeezed, limit + 1)
    except zlib.error as error:
        raise DataError(f"{where}: the packed tests are not zlib data ({error})") from None
    if len(plain) > limit:
        raise DataError(f"{where}: the packed tests unpack to more than {limit} bytes")
    if not stream.eof:
        raise DataError(f"{where}: the packed tests end in the middle of their zlib data")
    return plain


def _only_text(pickled: bytes, where: str) -> str:
    """The one text of a pickle: framing, the text, a note in the memo, the end; in this order and nothing else."""
    found: str | None = None
    end = -1
    try:
        for opcode, argument, position in pickletools.genops(pickled):
            end = position or 0
            if opcode.name in _TEXT and found is None:
                found = str(argument)
            elif opcode.name in (_FRAMING if found is None else _MEMO | {"STOP"}):
                continue
            else:
                raise DataError(f"{where}: the packed tests must be one text, but their pickle has {opcode.name}")
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: the packed tests are a damaged pickle ({error})") from None
    if found is None or end != len(pickled) - 1:
        raise DataError(f"{where}: the packed tests must be one text and nothing after it")
    return found
