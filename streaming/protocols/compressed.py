"""Values that TiCDC has compressed (``large-message-handle-compression``): lz4 frames, or snappy
blocks. Rows, DDLs and watermarks are compressed alike, keys never.

Each value tells by its first bytes what it is, so the setting may change amid a stream. A text
begins with ``{"``. A snappy block cannot: behind its length comes a literal, whose tag has other
bits than ``"``. Neither can an lz4 frame, which begins with its magic number. A message of simple
in Avro is a text too: it begins with bytes that neither has.

    values ──► texts, in pieces of bounded size; what cannot be inflated stays as it is
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import Messages

MAX_BYTES: Final = 128 << 20  # of one message's text: more is a dead letter
PIECE_BYTES: Final = 32 << 20  # of texts that are handed on at once
_TEXT: Final = b'{"'
# simple in Avro: the number of its record, and its kind twice. No snappy block of a text, nor of
# such a message, begins so.
_AVRO: Final = (b"\x16\x00\x00", b"\x16\x02\x02", b"\x16\x04\x04", b"\x16\x06\x06")
_TEXTS: Final = (_TEXT, *_AVRO)
_LZ4: Final = b"\x04\x22\x4d\x18"
# As TiCDC begins a frame: with a checksum of its content, which shows where a frame is torn.
_LZ4_OF_TICDC: Final = _LZ4 + b"\x64\x70\xb9"
# A frame with a line feed, which no text has. A stream of many frames is read 30 times as fast.
_BETWEEN: Final = _LZ4 + b"\x60\x40\x82\x01\x00\x00\x80\n\x00\x00\x00\x00"
_BATCH_BYTES: Final = 1 << 20  # of frames in a stream
_MOST_TIMES: Final = 255  # a byte of lz4 becomes no more bytes of text; one of snappy fewer than 22
_SNAPPY_TIMES: Final = 22
_SNAPPY: Final = pa.Codec("snappy")

Texts = Callable[[Sequence[bytes | None]], Iterator[bytes | None]]


def begin_as_texts(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Those that are not compressed; so are tombstones."""
    begins = pc.fill_null(pc.starts_with(values, _TEXT), True)
    if not pc.all(begins).as_py():
        for head in _AVRO:
            begins = pc.or_(begins, pc.fill_null(pc.starts_with(values, head), True))
    found: npt.NDArray[np.bool_] = begins.to_numpy(zero_copy_only=False)
    return found


def in_pieces(messages: Messages, texts: Texts) -> Iterator[Messages]:
    """The messages with their texts. A piece has about ``PIECE_BYTES`` or is one message, whatever
    the values claim to hold."""
    first, size, made = 0, 0, list[bytes | None]()
    for text in texts(messages.values.to_pylist()):
        made.append(text)
        size += len(text or b"")
        if size >= PIECE_BYTES:
            yield messages.part_with(first, made)
            first, size, made = first + len(made), 0, []
    if made:
        yield messages.part_with(first, made)


def texts_of(values: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """The text of each; a value that cannot be inflated stays as it is."""
    batch, size = list[bytes | None](), 0
    for each in values:
        batch.append(each)
        size += len(each or b"")
        if size >= _BATCH_BYTES:
            yield from _texts(batch)
            batch, size = [], 0
    yield from _texts(batch)


def _texts(values: Sequence[bytes | None]) -> Iterator[bytes | None]:
    frames = {n: v for n, v in enumerate(values) if v is not None and v.startswith(_LZ4_OF_TICDC)}
    joined = _joined([*frames.values()]) if len(frames) > 1 else None
    known = {} if joined is None else dict(zip(frames, joined, strict=True))
    for n, value in enumerate(values):
        yield known[n] if n in known else value if value is None else text_of(value)


def text_of(value: bytes) -> bytes:
    """The value itself where it cannot be inflated."""
    if value.startswith(_TEXTS):
        return value
    try:
        found = _from_lz4(value) if value.startswith(_LZ4) else _from_snappy(value)
    except (OSError, pa.ArrowException):
        return value
    return value if found is None else found


def fault(value: bytes) -> str | None:
    """Why a value that is no message cannot be inflated; None: it does not seem compressed."""
    most = f"more than {MAX_BYTES >> 20} MiB of text"
    if value.startswith(_LZ4):
        return f"its lz4 frame is torn or broken, or has {most}"
    size = _snappy_size(value)
    return f"its snappy block has {most}: {size} bytes" if (size or 0) > MAX_BYTES else None


def _from_lz4(value: bytes) -> bytes | None:
    """A frame does not tell the size of its text."""
    room = min(MAX_BYTES + 1, _MOST_TIMES * len(value) + 64)
    found: bytes = pa.CompressedInputStream(pa.BufferReader(value), "lz4").read(room)
    return None if len(found) > MAX_BYTES else found


def _from_snappy(value: bytes) -> bytes | None:
    size = _snappy_size(value)
    if size is None or size > MAX_BYTES:
        return None
    found: bytes = _SNAPPY.decompress(value, size, asbytes=True)
    return found


def _snappy_size(value: bytes) -> int | None:
    """The size of the text, if a block begins like that and can hold so much."""
    size = 0
    for n, byte in enumerate(value[:5]):
        size |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            is_literal = len(value) > n + 1 and value[n + 1] & 3 == 0
            return size if is_literal and size <= _SNAPPY_TIMES * len(value) else None
    return None


def _joined(frames: Sequence[bytes]) -> list[bytes] | None:
    """The texts of all; None where one of them cannot be inflated or they are large."""
    stream = pa.CompressedInputStream(pa.BufferReader(_BETWEEN.join(frames)), "lz4")
    blocks, size = list[bytes](), 0
    try:
        while block := stream.read(1 << 20):
            blocks.append(block)
            size += len(block)
            if size > PIECE_BYTES:
                return None
    except (OSError, pa.ArrowException):
        return None
    texts = b"".join(blocks).split(b"\n")
    return texts if len(texts) == len(frames) else None
