"""What the plain rows of a table look like, byte by byte, and reading many of them at once.

TiCDC writes one table's rows alike: the same head, numbers of the same width, ``mysqlType`` of the
same length in an order that differs from message to message. From one of them, read slowly, come
the places to look at and the schema to parse by; a row is only taken where every byte before
``mysqlType`` is one that may be there, and what follows has been parsed under a schema that
tolerates no other name, with every name there. ``mysqlType`` itself is cut at its commas, a fifth
of the work of parsing it: the pieces must be the sample's, each once.

``pyarrow.json`` refuses by itself, where unexpected fields are errors: a name that stands twice,
a number where text is expected, ``NaN``, half a surrogate pair, raw control characters. It does
not see the end of a line, a name that is missing, or UTF-8 that is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.canal_json.events import Row, Shape
from streaming.protocols.canal_json.heads import some
from streaming.protocols.canal_json.message import Malformed, event, parse
from streaming.protocols.canal_json.rows import Rows
from streaming.protocols.canal_json.tails import (
    Mask,
    Positions,
    Tails,
    all_named,
    column,
    lengths,
    old_rows,
    valid,
)
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE

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
_BETWEEN: Final = b'","'  # two types; within a text a quote has a backslash before it
_NAMES: Final = frozenset(
    ("id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql", "sqlType")
) | {"mysqlType", "old", "data", "_tidb"}
_END: Final = 1 << 30
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
    pairs: Sequence[bytes]  # name and type as they are written
    schema: pa.Schema

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
        if not isinstance(row, Row) or sql < 0 or start < 2 or type(fields) is not dict:
            return None
        types, columns = fields["mysqlType"], row.shape.columns
        extra = [name for name in fields if name not in _NAMES]
        texts = [*(types or {}).values(), *(fields[name] for name in extra)]
        if (
            not types
            or set(fields["_tidb"]) != {"commitTs"}
            or any(type(text) is not str for text in texts)
            or any("\\" in name or '"' in name for name in (*types, *columns, *extra))
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
        return Template(head, sql, first, end, shape, sql_types, pairs, _schema(columns, extra))

    def fits(self, values: pa.BinaryArray) -> Mask:
        """Which of the messages, all with this head, have a tail where the sample has its own."""
        times = pc.binary_slice(values, self.head, self.sql)
        fits = pc.match_substring_regex(times, _TIMES)
        sql_types = pc.binary_slice(values, self.sql, self.types)
        are_alike = pc.equal(sql_types, pa.scalar(self.sql_types, pa.binary()))
        if not pc.all(are_alike).as_py():
            are_alike = pc.match_substring_regex(sql_types, _SQL)
        ends = pc.binary_slice(values, self.types_end, self.types_end + 4)
        fits = pc.and_(fits, are_alike)
        fits = pc.and_(fits, pc.equal(ends, pa.scalar(b'"},"', pa.binary())))
        fits = pc.and_(fits, pc.ends_with(values, b"}"))
        found: Mask = fits.to_numpy(zero_copy_only=False)
        return found & self._has_types(values)

    def _has_types(self, values: pa.BinaryArray) -> Mask:
        """Which of the messages have the sample's types, in any order."""
        count = len(self.pairs)
        texts = pc.binary_slice(values, self.types, self.types_end)
        pieces = pc.split_pattern(texts, _BETWEEN)
        at = np.flatnonzero(lengths(pieces) == count)
        codes = pc.index_in(some(pieces, at).flatten(), pa.array(self.pairs, pa.binary()))
        known = np.zeros((len(at), count + 1), np.bool_)
        rows = np.repeat(np.arange(len(at)), count)
        known[rows, pc.fill_null(codes, count).to_numpy()] = True
        found = np.zeros(len(values), np.bool_)
        found[at] = known[:, :count].all(axis=1)
        return found

    def read(
        self, values: pa.BinaryArray, positions: Positions, *, whole_old: bool
    ) -> tuple[Rows, Positions]:
        """The rows of messages that fit and turn out to be plain, and the indices of those.

        ``whole_old``: with all columns of old rows; where it cannot be told whether one was sent as
        NULL or not at all, the row is not plain. Raises one of ``REFUSALS`` where one is no JSON or
        not by this template.
        """
        tails = Tails.of(pc.binary_slice(values, self.types_end + 3, _END))
        table = tails.parse(self.schema)
        ops = pc.binary_slice(values, self.head, self.head + 1)
        op = _OPS[np.frombuffer(ops.buffers()[2], np.uint8, len(ops))]
        at = np.flatnonzero(self._plain(table, op))
        table = _some(table, at)
        named = np.flatnonzero(all_named(table, tails, at))
        table, at = _some(table, named), at[named]
        old = column(table, "old").flatten()
        if whole_old:
            old, told = old_rows(table, tails, at)
            if not told.all():
                kept = np.flatnonzero(told)
                old = old.filter(pa.array(told[np.flatnonzero(lengths(column(table, "old")))]))
                table, at = _some(table, kept), at[kept]
        rows = Rows(
            positions=positions[at],
            op=op[at],
            commit_ts=column(table, "_tidb").field("commitTs").to_numpy(),
            data=column(table, "data").flatten(),
            old=old,
            old_at=np.flatnonzero(lengths(column(table, "old"))),
            errors={},
        )
        return rows, at

    def _plain(self, table: pa.Table, op: npt.NDArray[np.int8]) -> Mask:
        """One row each, with a commit-ts, and an old row only of an UPDATE."""
        tidb = column(table, "_tidb")
        plain = valid(tidb.field("commitTs")) & valid(tidb)
        data, old = column(table, "data"), column(table, "old")
        plain &= (lengths(data) == 1) & (lengths(old) <= (op == OP_UPDATE))
        for rows in (data, old):
            items = rows.flatten()
            if items.null_count:
                parents = pc.list_parent_indices(rows).to_numpy()
                plain[parents[~valid(items)]] = False
        return plain


def _some(table: pa.Table, indices: Positions) -> pa.Table:
    return table if len(indices) == len(table) else table.take(pa.array(indices))


def _schema(columns: Iterable[str], extra: Iterable[str]) -> pa.Schema:
    row = pa.struct([(name, pa.string()) for name in columns])
    return pa.schema(
        [
            ("old", pa.list_(row)),
            ("data", pa.list_(row)),
            ("_tidb", pa.struct([("commitTs", pa.int64())])),
            *((name, pa.string()) for name in extra),
        ]
    )
