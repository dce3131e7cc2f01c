"""What the plain rows of a table look like, byte by byte, and reading many of them at once.

TiCDC writes one table's rows alike: the same head, numbers of the same width, ``mysqlType`` of the
same length in an order that differs from message to message. From one of them, read slowly, come
the places to look at and the schema to parse by; a row is only taken where every byte before
``mysqlType`` is one that may be there, and what follows has been parsed under a schema that
tolerates no other name, with every name there.

``pyarrow.json`` refuses by itself, where unexpected fields are errors: a name that stands twice,
a number where text is expected, ``NaN``, half a surrogate pair, raw control characters. It does
not see the end of a line, a name that is missing, or UTF-8 that is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.canal_json.events import Row, Shape
from streaming.protocols.canal_json.message import Malformed, event, parse
from streaming.protocols.canal_json.rows import Rows
from streaming.protocols.canal_json.tails import (
    Mask,
    Positions,
    Tails,
    all_named,
    are_all,
    column,
    lengths,
    old_rows,
    valid,
)
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE

_TAIL_START: Final = b'"mysqlType":'
_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_PAIR: Final = rf'"[^"\\\x00-\x1f]*":-?{_NUMBER}'
# Of a head what follows the table's constant beginning.
_HEAD: Final = (
    rf'^(?:INSERT|UPDATE|DELETE)","es":{_NUMBER},"ts":{_NUMBER},"sql":"",'
    rf'"sqlType":\{{(?:{_PAIR}(?:,{_PAIR})*)?\}},"mysqlType":$'
)
_NAMES: Final = frozenset(
    ("id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql", "sqlType")
) | {"mysqlType", "old", "data", "_tidb"}
_END: Final = 1 << 30
_OPS: Final = np.zeros(256, np.int8)
_OPS[ord("D")], _OPS[ord("I")], _OPS[ord("U")] = OP_DELETE, OP_INSERT, OP_UPDATE


@dataclass(frozen=True, slots=True)
class Template:
    """``head``: how many bytes all rows of the table begin with; ``tail``: where ``mysqlType``
    stands; ``types_end``: where it ends."""

    head: int
    tail: int
    types_end: int
    shape: Shape
    types: Mapping[str, str]  # mysqlType, in the sample's order
    schema: pa.Schema

    @staticmethod
    def of(sample: bytes, head: int) -> Template | None:
        """From one message that begins like its table's; None where it is not plain."""
        try:
            fields = parse(sample)
            row = event(fields)
        except Malformed:
            return None
        tail = sample.find(b"}," + _TAIL_START, head) + 2
        if not isinstance(row, Row) or tail < 2 or type(fields) is not dict:
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
        start = tail + len(_TAIL_START)
        if sample[start : start + 1] != b"{":
            return None
        text = sample[start:].decode()
        length = len(text[: json.JSONDecoder().raw_decode(text)[1]].encode())
        shape = Shape(columns, row.shape.wire_types, row.shape.key_names)
        return Template(head, tail, start + length, shape, types, _schema(types, columns, extra))

    def fits(self, values: pa.BinaryArray) -> Mask:
        """Which of the messages, all with this head, have a tail where the sample has its own."""
        heads = pc.binary_slice(values, self.head, self.tail + len(_TAIL_START))
        fits = pc.match_substring_regex(heads, _HEAD)
        ends = pc.binary_slice(values, self.types_end - 1, self.types_end + 2)
        fits = pc.and_(fits, pc.equal(ends, pa.scalar(b'},"', pa.binary())))
        fits = pc.and_(fits, pc.ends_with(values, b"}"))
        return fits.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def read(
        self, values: pa.BinaryArray, positions: Positions, *, whole_old: bool
    ) -> tuple[Rows, Positions]:
        """The rows of messages that fit and turn out to be plain, and the indices of those.

        ``whole_old``: with all columns of old rows; where it cannot be told whether one was sent as
        NULL or not at all, the row is not plain. Raises one of ``REFUSALS`` where one is no JSON or
        not by this template.
        """
        tails = Tails.of(pc.binary_slice(values, self.tail, _END))
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
        """One row each, with a commit-ts and these types, and an old row only of an UPDATE."""
        tidb, types = column(table, "_tidb"), column(table, "mysqlType")
        plain = valid(tidb.field("commitTs")) & valid(tidb) & valid(types)
        for name, text in self.types.items():
            values = types.field(name)
            if not are_all(values, text):
                same = pc.fill_null(pc.equal(values, text), False)
                plain &= same.to_numpy(zero_copy_only=False)
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


def _schema(types: Iterable[str], columns: Iterable[str], extra: Iterable[str]) -> pa.Schema:
    row = pa.struct([(name, pa.string()) for name in columns])
    return pa.schema(
        [
            ("mysqlType", pa.struct([(name, pa.string()) for name in types])),
            ("old", pa.list_(row)),
            ("data", pa.list_(row)),
            ("_tidb", pa.struct([("commitTs", pa.int64())])),
            *((name, pa.string()) for name in extra),
        ]
    )
