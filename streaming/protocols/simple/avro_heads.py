"""What stands before the values of rows of simple in Avro, of many messages at once.

union index, kind, payload's index, version, database, table, tableID, type, commitTs, buildTs,
schemaVersion, and three unions that are mostly null: claim, cut to its key, checksum
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.avro_binary.byte_walk import Bytes, Indexes, Mask, Walk
from streaming.protocols.contract import DAMAGED, OP_DELETE
from streaming.protocols.simple.avro_reader import DML, MESSAGE, OPS, VERSION
from streaming.protocols.simple.strict_parser import NO_CRC

_OPS: Final = np.full(256, -1, np.int8)
_OPS[: 2 * len(OPS) : 2] = OPS  # the number of an enum's symbol is written doubled
NOT_TOLD: Final = -2
_NULL, _NOT_NULL = 0, 2  # as the index of a branch is written
_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True, slots=True, eq=False)
class RowHeads:
    """``database``, ``table``: where the names begin and end; ``body``: how many bytes stand before
    the values. It means something for messages that are right: rows that are whole."""

    of: Bytes
    database: tuple[Indexes, Indexes]
    table: tuple[Indexes, Indexes]
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    version: Indexes
    body: Indexes
    checksums: Indexes  # as in a block; NOT_TOLD where the message has none
    is_right: Mask

    @staticmethod
    def read(values: pa.BinaryArray) -> RowHeads:
        of = Bytes.of(values)
        walk = Walk(of, of.starts, of.ends)
        for number in (MESSAGE, DML, DML, VERSION):
            walk.expect(2 * number)
        database, table = walk.span(), walk.span()
        walk.number()
        op = _OPS[walk.byte()]
        walk.is_right &= op >= 0
        commit_ts = walk.number()
        walk.is_right &= commit_ts > 0
        walk.number()
        version = walk.number()
        walk.expect(_NULL)
        walk.expect(_NULL)
        checksums = _checksums(walk, op)
        walk.is_right &= walk.at < walk.ends
        body = walk.at - of.starts
        return RowHeads(of, database, table, op, commit_ts, version, body, checksums, walk.is_right)

    def checksums_of(self, rows: Indexes) -> Indexes | None:
        """As in a block."""
        told = self.checksums[rows]
        return None if (told == NOT_TOLD).all() else np.where(told == NOT_TOLD, 0, told)

    def tables(self) -> Iterator[tuple[TableName, int, Indexes]]:
        """Each table and version, and its messages, which rise."""
        rows = np.flatnonzero(self.is_right)
        if not len(rows):
            return
        codes = self.version[rows].view(np.uint64) * _FACTOR
        for begins, ends in (self.database, self.table):
            codes = (codes ^ self.of.hashed(begins[rows], ends[rows])) * _FACTOR
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order])) + 1
        for group in np.split(rows[order], bounds):
            first = int(group[0])
            is_same = self.version[group] == self.version[first]
            texts = []
            for begins, ends in (self.database, self.table):
                name = self.of.data[begins[first] : ends[first]].tobytes()
                is_same &= self.of.are(begins[group], ends[group], name)
                texts.append(name)
            try:
                schema, table = (text.decode() for text in texts)
            except UnicodeDecodeError:
                continue
            if table:
                yield TableName(schema, table), int(self.version[first]), group[is_same]


def _checksums(walk: Walk, op: npt.NDArray[np.int8]) -> Indexes:
    found: Indexes = np.full(len(op), NOT_TOLD)
    index = walk.byte()
    walk.is_right &= (index == _NULL) | (index == _NOT_NULL)
    rows = np.flatnonzero(walk.is_right & (index == _NOT_NULL))
    if len(rows):
        part = walk.part(rows)
        version = part.number()
        part.is_right &= (version >= -(2**31)) & (version < 2**31)
        corrupted = part.byte()
        current, previous = part.number(), part.number()
        for each in (current, previous):
            part.is_right &= (each >= 0) & (each < NO_CRC)
        part.is_right &= corrupted <= 1
        told = np.where(op[rows] == OP_DELETE, previous, current)
        found[rows] = np.where(corrupted == 1, DAMAGED, told)
        walk.join(part, rows)
    return found
