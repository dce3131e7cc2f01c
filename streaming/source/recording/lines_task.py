"""The task that reads and decodes some lines of a recording. Imports neither Spark nor gRPC."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.clocks import LATEST_MS, latest_ts
from streaming.protocols.contract import Decoder, Messages, Wanted, reads_keys, with_key
from streaming.source.body_files import BodyFile
from streaming.source.positions import Positions
from streaming.source.recording.file import KEYED, MESSAGE, parts_of, read_lines
from streaming.source.resolved.numbering import NumberedDecoder, Numbering
from streaming.source.task_results import ReadFailure, Result

CHUNK_LINES = 50_000


class NoBase64(ValueError):
    """A line whose value cannot be decoded. The message says which."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines from ``first`` to before ``last``, which are these bytes of the file."""

    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LinesTask:
    """A `Task`. It reads the lines of each part from
    ``positions`` on; a part without a position is left out."""

    plain: str
    lists: Sequence[Lines]
    positions: Positions
    decode: Decoder | NumberedDecoder
    wanted: Wanted
    folder: str | None

    def __call__(self, number: int) -> Iterator[Result]:
        bodies = BodyFile(self.folder)
        try:
            decode = self.decode
            if isinstance(decode, NumberedDecoder):
                decode = decode.started()
            lines = self.lists[number]
            for chunk in chunks(self.plain, lines, self.positions, with_keys=reads_keys(decode)):
                yield from map(bodies.put, decode(chunk, self.wanted))
            if isinstance(decode, Numbering):
                for part, at in self.positions.items():
                    yield decode.mark(part, at, max(at, lines.last))
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            # A file that is away may come again: it is unpacked anew, or the disk is back.
            is_unreadable = isinstance(error, NoBase64 | pa.ArrowInvalid)
            reason = str(error) if is_unreadable else f"{type(error).__name__}: {error}"
            yield ReadFailure(is_unreadable=is_unreadable, reason=reason)
        finally:
            bodies.close()


def chunks(
    plain: str, lines: Lines, positions: Positions, *, with_keys: bool = False
) -> Iterator[Messages]:
    """The messages of each part, by rising position. ``with_keys``: `contract.with_key`. Raises
    OSError, ArrowInvalid and NoBase64."""
    with Path(plain).open("rb") as file:
        file.seek(lines.begin)
        text = file.read(lines.end - lines.begin)
    if not text:
        return
    schema = KEYED if with_keys else MESSAGE
    table = read_lines(pa.BufferReader(text), schema, block_bytes=len(text) + 1)
    parts = parts_of(table).combine_chunks().dictionary_encode()
    codes, names = np.asarray(parts.indices), parts.dictionary.to_pylist()
    values = table["value_b64"].combine_chunks()
    keys = table["key_b64"].combine_chunks() if with_keys else None
    times_ms = pc.fill_null(table["timestamp_ms"], 0).combine_chunks().to_numpy()
    at = np.arange(lines.first, lines.first + len(table))
    for code, name in sorted(enumerate(names), key=lambda each: each[1]):
        rows = np.flatnonzero((codes == code) & (at >= positions.get(name, 1 << 62)))
        for begin in range(0, len(rows), CHUNK_LINES):
            some = rows[begin : begin + CHUNK_LINES]
            believed = times_ms[some][times_ms[some] < LATEST_MS]  # not in µs or ns
            newest_ms = int(believed.max(initial=0))
            decoded = _decoded(values, some, at, "value_b64")
            if keys is not None:
                both = zip(_decoded(keys, some, at, "key_b64"), decoded, strict=True)
                decoded = [with_key(key, value) for key, value in both]
            yield Messages(
                part=name,
                positions=pa.array(at[some], pa.int64()),
                values=pa.array(decoded, pa.binary()),
                latest_ts=latest_ts(time.time() * 1e3, newest_ms),
                times_ms=pa.array(times_ms[some]),
            )


def _decoded(
    texts: pa.StringArray, rows: npt.NDArray[np.int64], lines: npt.NDArray[np.int64], name: str
) -> list[bytes | None]:
    found: list[bytes | None] = []
    for text in texts.take(pa.array(rows)).to_pylist():
        try:
            found.append(None if text is None else base64.b64decode(text, validate=True))
        except binascii.Error as error:
            line = lines[rows[len(found)]] + 1
            raise NoBase64(f"line {line}: {name}: {error}") from None
    return found
