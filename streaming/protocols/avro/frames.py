"""What stands around the rows of avro, of many messages at once.

key    0, the schema's id in four bytes, the key's columns; null for a table without a key
value  0, the schema's id in four bytes, a row
       null: a DELETE, of which only the key is known
       3 and a commit-ts in eight bytes: a DELETE (TiCDC's new architecture, with watermarks)
       2 and a ts in eight bytes: a watermark; 1 and JSON: a DDL
       3, 0 or 5, and a UUID: a row whose schema is in AWS's Glue, which is not read here; its key
       begins so, too
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.protocols.avro_binary.byte_walk import Bytes, Indexes, Mask
from streaming.protocols.contract import KEY_LENGTH, NO_KEY, TOMBSTONE

MAGIC, DDL, WATERMARK, DELETE = range(4)
HEAD: Final = 5  # bytes before a row
TIMED: Final = 9  # bytes of a watermark, and of a DELETE with its commit-ts
NO_ID: Final = -1
_GLUE: Final = (b"\x03\x00", b"\x03\x05")  # its version, and whether what follows is compressed
_GLUE_HEAD: Final = 18


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """By message: where key and value begin and end, and the ids of their schemas (NO_ID: none).
    ``first``: the value's first byte, or -1. ``ts``: behind it, where the value is so long."""

    of: Bytes
    is_framed: Mask
    is_tombstone: Mask
    keys: tuple[Indexes, Indexes]
    values: tuple[Indexes, Indexes]
    key_ids: Indexes
    value_ids: Indexes
    first: Indexes
    ts: Indexes

    @staticmethod
    def read(messages: pa.BinaryArray) -> Frames:
        """``messages``: as `contract.with_key` makes them, without a null."""
        of = Bytes.of(messages)
        begins = of.starts + KEY_LENGTH.size
        is_framed = begins <= of.ends
        told = (of.words(of.starts) & np.uint64(0xFFFF_FFFF)).view(np.int64)
        has_key = told != NO_KEY
        is_tombstone = has_key & (told & TOMBSTONE != 0)
        length = np.where(has_key, told & (TOMBSTONE - 1), 0)
        key_ends = begins + length
        is_framed &= key_ends <= of.ends
        is_framed &= ~is_tombstone | (key_ends == of.ends)
        key_ends = np.minimum(key_ends, of.ends)
        begins = np.minimum(begins, key_ends)
        has_value = is_framed & (key_ends < of.ends)
        first = np.where(has_value, of.data[np.minimum(key_ends, of.ends)], -1).astype(np.int64)
        last = len(of.windows) - 1
        ts = of.words(np.minimum(key_ends + 1, last)).byteswap().view(np.int64)
        return Frames(
            of,
            is_framed,
            is_framed & is_tombstone,
            (begins, key_ends),
            (key_ends, of.ends),
            _ids(of, begins, key_ends, is_framed & has_key),
            _ids(of, key_ends, of.ends, is_framed & ~is_tombstone),
            first,
            ts,
        )

    def is_of_glue(self, row: int) -> bool:
        """Whether its key or its value is as AWS's Glue has them; a DELETE has a key alone."""
        for begins, ends in (self.keys, self.values):
            begin, end = int(begins[row]), int(ends[row])
            head = self.of.data[begin : begin + 2].tobytes()
            if end - begin >= _GLUE_HEAD and head in _GLUE:
                return True
        return False

    def sizes(self) -> Indexes:
        """The bytes of the values."""
        found: Indexes = self.values[1] - self.values[0]
        return found


def _ids(of: Bytes, begins: Indexes, ends: Indexes, is_there: Mask) -> Indexes:
    last = len(of.windows) - 1
    words = of.words(np.minimum(begins, last))
    has_id = is_there & (ends - begins >= HEAD) & ((words & np.uint64(0xFF)) == MAGIC)
    ids = (words.byteswap() >> np.uint64(24)) & np.uint64(0xFFFF_FFFF)
    found: npt.NDArray[np.int64] = np.where(has_id, ids.view(np.int64), NO_ID)
    return found
