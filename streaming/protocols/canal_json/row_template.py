"""How the plain rows of a table look, byte by byte, and reading many of them at once.

TiCDC writes one table's rows alike: the same head, numbers of the same width, ``mysqlType`` of the
same length in an order that differs from message to message. One of them, read slowly, gives the
places to look at and the names to expect. A row is only taken if every byte is one that may be
there: behind ``mysqlType`` the sample's names in its order, some of which the old row may lack, and
a text or null behind each (``quote_scanner.py``). ``mysqlType`` is cut where its names begin: the
pieces must be the sample's, each once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.canal_json.strict_parser import event
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Mask, Text, Walk
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays
from streaming.protocols.rows.side_by_side import WalkedRows

_TYPES_START: Final = b'"mysqlType":'
_SQL_START: Final = b'"sql":"",'
_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_PAIR: Final = rf'"[^"\\\x00-\x1f]*":-?{_NUMBER}'
# Of a head what follows the table's constant beginning: up to ``sql``, and from there to the first
# name in ``mysqlType``.
_TIMES: Final = rf'^(?:INSERT|UPDATE|DELETE)","es":{_NUMBER},"ts":{_NUMBER},$'
_SQL: Final = rf'^"sql":"","sqlType":\{{(?:{_PAIR}(?:,{_PAIR})*)?\}},"mysqlType":\{{"$'
_SAMPLES_SQL: Final = re.compile(_SQL.encode())
_TYPE: Final = re.compile(rb'"((?:[^"\\]|\\.)*":"(?:[^"\\]|\\.)*)"')
_COMMA: Final = ord(",")
_OLD: Final = b',"old":[{'
_NO_OLD: Final = b',"old":null'
_BETWEEN: Final = b'","'  # two types; within a text a quote has a backslash before it
_TAIL: Final = frozenset(("old", "data", "_tidb"))
_OPS: Final = np.zeros(256, np.int8)
_OPS[ord("D")], _OPS[ord("I")], _OPS[ord("U")] = OP_DELETE, OP_INSERT, OP_UPDATE


@dataclass(frozen=True, slots=True)
class Template:
    """``head``: how many bytes all rows of the table begin with; ``sql``: where that name stands;
    ``types``: where the first name in ``mysqlType`` begins; ``types_end``: where its last type
    ends."""

    head: int
    sql: int
    types: int
    types_end: int
    shape: Shape
    sql_types: bytes  # from ``sql`` to ``types``
    pairs: pa.StringArray  # name and type as they are written before another, then as the last
    members: Sequence[str]  # the names behind ``mysqlType``

    @staticmethod
    def of(sample: bytes, head: int) -> Template | None:
        """From one message that begins like its table's; None where it is not plain."""
        try:
            fields = parse(sample)
            row = event(fields)
        except Malformed:
            return None
        sql = sample.find(_SQL_START, head)
        start = sample.find(b"}," + _TYPES_START + b'{"', sql) + 2
        if not isinstance(row, ParsedRow) or sql < 0 or start < 2 or type(fields) is not dict:
            return None
        types, columns = fields["mysqlType"], row.shape.columns
        members = [*fields][[*fields].index("mysqlType") + 1 :]
        texts = [*(types or {}).values(), *(fields[name] for name in members if name not in _TAIL)]
        if (
            not types
            or not _TAIL.issubset(members)
            or set(fields["_tidb"]) != {"commitTs"}
            or any(type(text) is not str for text in texts)
            or any("\\" in name or '"' in name for name in (*types, *columns, *members))
        ):
            return None
        start += len(_TYPES_START)
        text = sample[start:].decode()
        written = text[: json.JSONDecoder().raw_decode(text)[1]].encode()
        pairs = _TYPE.findall(written)
        first, end = start + 2, start + len(written) - 2
        sql_types = sample[sql:first]
        if (
            len(pairs) != len(types)
            or written != b'{"' + _BETWEEN.join(pairs) + b'"}'
            or _SAMPLES_SQL.match(sql_types) is None
        ):
            return None
        shape = Shape(columns, row.shape.wire_types, row.shape.key_names)
        return Template(head, sql, first, end, shape, sql_types, _written(pairs), members)

    def _fits(self, values: pa.BinaryArray) -> Mask:
        """Which of the messages, all with this head, have a tail where the sample has its own."""
        times = pc.binary_slice(values, self.head, self.sql)
        fits = pc.match_substring_regex(times, _TIMES)
        sql_types = pc.binary_slice(values, self.sql, self.types)
        are_alike = pc.equal(sql_types, pa.scalar(self.sql_types, pa.binary()))
        if not pc.all(are_alike).as_py():
            are_alike = pc.match_substring_regex(sql_types, _SQL)
        fits = pc.and_(fits, are_alike)
        found: Mask = fits.to_numpy(zero_copy_only=False)
        return found

    def read(
        self, values: pa.BinaryArray, positions: Indexes, key: Sequence[str] | None
    ) -> tuple[RowArrays, Indexes]:
        """As `side_by_side.Template.read`; all messages have this head."""
        fits: Indexes = np.flatnonzero(self._fits(values))
        rows, plain = self._read(some(values, fits), positions[fits], key)
        return rows, fits[plain]

    def _read(
        self, values: pa.BinaryArray, positions: Indexes, key: Sequence[str] | None
    ) -> tuple[RowArrays, Indexes]:
        """The same for messages that fit."""
        text, columns = Text.of(values), self.shape.columns
        op = _OPS[text.byte(text.starts + self.head)]
        walk = self._behind_types(text)
        data: dict[str, Cells] = {}
        old: dict[str, Cells] = {}
        old_at = np.zeros(0, np.int64)
        for name in self.members:
            if name == "old":
                old_at = np.flatnonzero((op == OP_UPDATE) & text.has(_OLD, walk.at))
                old = dict(zip(columns, _old(walk, old_at, columns), strict=True))
            elif name == "data":
                walk.expect(b',"data":[')
                data = dict(zip(columns, walk.cells(columns), strict=True))
                for cells in data.values():
                    walk.is_right &= cells.is_there
                walk.expect(b"}]")
            elif name == "_tidb":
                walk.expect(b',"_tidb":{"commitTs":')
                is_last = name == self.members[-1]
                commit_ts = walk.number(text.ends - 2 if is_last else text.quote(walk.quote) - 2)
                walk.expect(b"}")
            else:
                (cells,) = walk.cells([name], b",")
                walk.is_right &= cells.is_text
        walk.expect(b"}")
        walk.is_right &= walk.at == text.ends
        rows = WalkedRows(
            is_right=walk.is_right,
            positions=positions,
            op=op,
            commit_ts=commit_ts,
            data=data,
            old=old,
            old_at=old_at,
        )
        return rows.plain(key)

    def _behind_types(self, text: Text) -> Walk:
        """With the sample's types, in any order."""
        count = len(self.pairs) // 2
        begins, ends = text.starts + self.types, text.starts + self.types_end
        first = np.searchsorted(text.quotes, begins) - 1
        bounds = text.quote(first[:, None] + _every_fourth(count))
        bounds[:, :-1] += 1
        is_right = (bounds[:, 0] == begins) & (bounds[:, -1] == ends) & (ends < text.ends)
        at = np.flatnonzero(is_right)
        texts = text.pieces(bounds[at].ravel())
        codes = np.full((len(at), count + 1), 2 * count)  # the last: from this row to the next one
        codes.ravel()[:-1] = pc.fill_null(pc.index_in(texts, self.pairs), 2 * count).to_numpy()
        known = np.zeros((len(at), 2 * count + 1), np.bool_)
        known[np.arange(len(at))[:, None], codes[:, :-1]] = True
        is_right[at] = (known[:, :count] | known[:, count:-1]).all(axis=1)
        walk = Walk(text, ends, first + (4 * count - 1))
        walk.is_right = is_right
        walk.expect(b'"}')
        return walk


def _written(pairs: Sequence[bytes]) -> pa.StringArray:
    return pa.array([*(pair + _BETWEEN for pair in pairs), *pairs], pa.binary()).cast(pa.string())


def _every_fourth(count: int) -> Indexes:
    """The quotes that names begin with, and the last one."""
    return np.append(np.arange(0, 4 * count, 4), 4 * count - 1)


def _old(walk: Walk, rows: Indexes, columns: Sequence[str]) -> list[Cells]:
    """The values of the old rows, which these messages have; the other messages say that there is
    none."""
    before, is_right = walk.part(rows), walk.is_right[rows]
    walk.expect(_NO_OLD)
    before.expect(_OLD[:-1])
    cells = before.cells(columns)
    before.expect(b"}]")
    walk.is_right[rows] = is_right
    walk.join(before, rows)
    return cells
