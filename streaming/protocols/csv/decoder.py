"""csv with commit-ts, decoded in numpy and Arrow: the text of a file in, blocks out.

A row has an operation, its table's names and its commit-ts, and then one value for each column. It
does not tell the columns: they come along (`table_head.TableHead`). With `output-old-value` an
UPDATE is two rows, the old one and the new one; both become one row here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conf.sources.csv_format import CsvFormat
from streaming.protocols.contract import (
    NO_TABLE,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Block,
    Cells,
    Kind,
    Messages,
    Wanted,
    ipc,
    with_head,
)
from streaming.protocols.csv.cells import Fields, fields_of
from streaming.protocols.csv.fields import Mask, Rows, rows_of
from streaming.protocols.csv.plain_rows import PlainRows, plain_rows
from streaming.protocols.csv.table_head import MAGIC, TableHead
from streaming.protocols.json_text.byte_places import Indexes
from streaming.protocols.rows.blocks import Collector, key_of, with_clocks
from streaming.protocols.rows.parsed_message import Bad, Error, Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct

CHUNK_BYTES: Final = 16 << 20
_OPS: Final = np.full(256, -1, np.int8)
_OPS[ord("D")], _OPS[ord("I")], _OPS[ord("U")] = OP_DELETE, OP_INSERT, OP_UPDATE
_DIGITS: Final = 19  # of a commit-ts, at most
_TRUE: Final = b"true"
_FIRST_ROWS: Final = 16  # of a text; more would have to be broken
_HEADER: Final = b"ticdc-meta$operation"
_CUT: Final = Error("malformed", "the row was cut off: TiCDC writes it again in a later file")
_HALF: Final = Error(
    "malformed",
    "the old row of an UPDATE, and its new row is not behind it: if that was cut off, TiCDC writes "
    "both again in a later file",
)
_NO_LETTER: Final = Error("malformed", "no row of csv with its table's columns before it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a part, which begins with a row, at ``position``. ``is_first``: it is the
    beginning of its file. ``is_whole``: it ends where its file ends for good."""

    part: str
    text: bytes
    position: int
    head: TableHead
    is_first: bool
    is_whole: bool


def decode_text(
    of: Text, wanted: Wanted, *, latest_ts: int, start_ts: int, most_rows: int
) -> Iterator[Block]:
    """The blocks, and a DONE block that says how far the text was read."""
    rows = _rows(of.text, of.head, is_whole=of.is_whole)
    head = _head_of(rows, of.head) if of.head.others else of.head
    count = _behind_changes(rows, head, min(len(rows), max(most_rows, 2)))
    if count > len(rows):  # the new row of an UPDATE is not there
        count = len(rows) - (0 if of.is_whole else 1)
    at = int(of.is_first and count > 0 and _is_header(rows, head))
    while at < count:
        room = int(rows.begins[at]) + CHUNK_BYTES
        last = max(at + 1, int(np.searchsorted(rows.nexts[:count], room, side="right")))
        last = min(count, _behind_changes(rows, head, last))
        chunk = Messages(
            part=of.part,
            positions=pa.array(rows.begins[at:last] + of.position, pa.int64()),
            values=_as_they_stand(rows, at, last),
            latest_ts=latest_ts,
        )
        yield from _blocks(chunk, rows.part(at, last), head, wanted, start_ts)
        at = last
    used = int(rows.nexts[count - 1]) if count else 0
    yield Block(
        kind=Kind.DONE,
        part=of.part,
        rows=count,
        first=of.position,
        last=of.position + used,
        message_bytes=used,
    )


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Rows that have their head before them: dead letters, as `contract.Decoder` has them."""
    letters: dict[bytes, list[tuple[int, bytes]]] = {}
    bad: list[tuple[int, Bad]] = []
    for number, value in enumerate(messages.values.to_pylist()):
        head, _, text = (value or b"").removeprefix(MAGIC).partition(b"\n")
        try:
            TableHead.of(head)
        except (ValueError, KeyError, TypeError, AttributeError):
            bad.append((number, Bad(NO_TABLE, _NO_LETTER)))
            continue
        letters.setdefault(head, []).append((number, text.rstrip(b"\r\n") + b"\r\n"))
    if bad:
        collector = Collector(with_clocks(messages, start_ts), wanted)
        collector.keep_each(np.array([n for n, _ in bad]), [each for _, each in bad])
        yield from collector.blocks()
    positions = messages.positions.to_numpy()
    for text, found in letters.items():
        head = TableHead.of(text)
        rows = _rows(b"".join(each for _, each in found), head, is_whole=True)
        ends = np.cumsum([len(each) for _, each in found])
        of = np.searchsorted(ends, rows.begins, side="right")
        numbers = np.array([number for number, _ in found])[of]
        chunk = replace(
            messages,
            positions=pa.array(positions[numbers], pa.int64()),
            values=_as_they_stand(rows, 0, len(rows)),
        )
        yield from _blocks(chunk, rows, head, wanted, start_ts)


def first_row(text: bytes, csv: CsvFormat, *, is_whole: bool) -> bytes | None:
    """The row with which the text begins; of an UPDATE of two rows both. None: it goes on behind
    the text, unless that ``is_whole``."""
    head = TableHead(NO_TABLE, (), (), csv)
    rows = _rows(text, head, is_whole=is_whole)
    count = _behind_changes(rows, head, min(1, len(rows)))
    if not count or count > len(rows):
        count = len(rows) if is_whole else 0
    return rows.data[: int(rows.ends[count - 1])].tobytes() if count else None


def _rows(text: bytes, head: TableHead, *, is_whole: bool) -> Rows:
    quote = ord(head.csv.quote) if head.csv.quote else None
    return rows_of(text, head.csv.delimiter.encode(), quote, is_whole=is_whole)


def _head_of(rows: Rows, head: TableHead) -> TableHead:
    """The one whose number of fields the first rows have. TiCDC writes rows of one file alike."""
    by_fields = {each.fields: each for each in (*head.others, head)}
    for row in range(min(len(rows), _FIRST_ROWS)):
        found = by_fields.get(len(rows.first_fields(row, max(by_fields) + 1)))
        if found is not None and not (row == 0 and _is_header(rows, head)):
            return found
    return head


def _as_they_stand(rows: Rows, first: int, last: int) -> pa.BinaryArray:
    """The rows with their lines' ends, without a copy."""
    offsets = np.append(rows.begins[first:last], rows.nexts[last - 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows.data)]
    return pa.Array.from_buffers(pa.binary(), last - first, buffers)


def _behind_changes(rows: Rows, head: TableHead, count: int) -> int:
    """``count``, or one more where the last row is the old half of an UPDATE."""
    if not head.csv.has_old or not count:
        return count
    field = rows.first_fields(count - 1, 5)
    is_half = len(field) == 5 and field[0].strip(head.csv.quote.encode() or b" ") == b"D"
    return count + (is_half and field[4] == _TRUE)


def _is_header(rows: Rows, head: TableHead) -> bool:
    field = rows.first_fields(0, 1)
    return bool(field) and field[0].strip(head.csv.quote.encode() or b" ") == _HEADER


def _blocks(
    messages: Messages, rows: Rows, head: TableHead, wanted: Wanted, start_ts: int
) -> Iterator[Block]:
    messages = with_clocks(messages, start_ts)
    collector, name = Collector(messages, wanted), head.name
    is_wanted = name in wanted
    plain = None if rows.is_cut else plain_rows(rows, head, is_wanted=is_wanted)
    read = _read_plain(plain) if plain is not None else _read(rows, head, is_wanted=is_wanted)
    at, lone = read.at, _lone(read)
    good = read.good & ~lone
    if is_wanted:
        shape = _shape(head)
        data = struct(shape.columns, read.cells, len(at))
        taken = _row_arrays(at, read.op, read.commit_ts, read.is_update, data, good)
        if key := key_of(shape, wanted[name]):
            kept = [each for each in key if each in shape.columns]
            old = struct(kept, [taken.old.field(each) for each in kept], len(taken.old))
            taken = replace(taken, old=old)
        collector.take(name, shape, taken)
    elif good.any():
        collector.count(name, at[good], read.commit_ts[good])
    is_bad = np.ones(len(rows), np.bool_)
    is_bad[at[good]] = False
    fits, halves = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    fits[at] = True
    halves[at] = lone
    others = np.flatnonzero(is_bad)
    cut = len(rows) - 1 if rows.is_cut else -1
    errors = [
        Bad(
            name,
            _CUT if each == cut else _HALF if halves[each] else _error(head, bool(fits[each])),
            is_row=True,
        )
        for each in others.tolist()
    ]
    collector.keep_each(others, errors)
    for block in collector.blocks():
        yield _with_heads(block, head) if block.kind is Kind.BAD else block


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """``at``: the rows that have their fields; ``good``: which of these can be read; the others
    are by ``at``. ``cells``: of each column, if they are wanted."""

    at: Indexes
    good: Mask
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    is_update: Mask
    cells: list[pa.Array]


def _lone(read: _Read) -> Mask:
    """The old rows of UPDATEs that have no new row behind them."""
    old: Mask = read.good & read.is_update & (read.op == OP_DELETE)
    if old.any():
        new = read.good & read.is_update & (read.op == OP_INSERT)
        old[:-1] &= ~(
            new[1:]
            & (read.commit_ts[1:] == read.commit_ts[:-1])
            & (read.at[1:] == read.at[:-1] + 1)
        )
    return old


def _read_plain(plain: PlainRows) -> _Read:
    count = len(plain.op)
    good = np.ones(count, np.bool_)
    at = np.arange(count)
    return _Read(at, good, plain.op, plain.commit_ts, plain.is_update, plain.cells)


def _read(rows: Rows, head: TableHead, *, is_wanted: bool) -> _Read:
    width = len(head.csv.delimiter.encode())
    fits, begins, ends = rows.fields(head.fields, width)
    fields = fields_of(rows.data, begins, ends, head.csv)
    op, commit_ts = _ops(fields), _commit_ts(fields)
    is_update = fields.are(4, _TRUE) if head.csv.has_old else np.zeros(len(op), np.bool_)
    good = (op >= 0) & (commit_ts > 0)
    good &= fields.are(1, head.name.table.encode()) & fields.are(2, head.name.schema.encode())
    cells = []
    if is_wanted:
        cells = [
            fields.binary(column) if each in head.binary else fields.text(column)
            for column, (each, _) in enumerate(head.columns, head.before)
        ]
        good &= ~fields.is_bad
    if rows.is_cut and len(fits) and fits[-1]:
        good[-1] = False  # its last value may go on
    return _Read(np.flatnonzero(fits), good, op, commit_ts, is_update, cells)


def _row_arrays(  # noqa: PLR0917
    at: Indexes,
    op: npt.NDArray[np.int8],
    commit_ts: Indexes,
    is_update: Mask,
    data: pa.StructArray,
    good: Mask,
) -> RowArrays:
    """``at``: the rows' numbers in the chunk. Two halves of an UPDATE become one row, at the place
    of the first."""
    halves = np.zeros(len(at), np.bool_)  # the first ones
    if len(at) > 1 and is_update.any():
        halves[:-1] = (
            (good & is_update & (op == OP_DELETE))[:-1]
            & (good & is_update & (op == OP_INSERT))[1:]
            & (commit_ts[1:] == commit_ts[:-1])
            & (at[1:] == at[:-1] + 1)
        )
    olds = np.flatnonzero(halves)
    kept, place = np.flatnonzero(good & ~halves), at
    if len(olds):
        op, place = op.copy(), at.copy()
        op[olds + 1] = OP_UPDATE
        place[olds + 1] = at[olds]
    if len(kept) < len(at):
        place, op, commit_ts = place[kept], op[kept], commit_ts[kept]
    return RowArrays(
        positions=place,
        op=op,
        commit_ts=commit_ts,
        data=data if len(kept) == len(at) else data.take(pa.array(kept)),
        old=data.take(pa.array(olds)),
        old_at=np.searchsorted(kept, olds + 1),
        errors={},
    )


def _shape(head: TableHead) -> Shape:
    return Shape(
        columns=tuple(name for name, _ in head.columns),
        wire_types=head.columns,
        key_names=head.key,
        typed=frozenset((name, pa.binary()) for name in head.binary),
        cells=Cells.NAMED,
        letter_head=head.to_json(),
    )


def _ops(fields: Fields) -> npt.NDArray[np.int8]:
    begins, ends = fields.begins[:, 0], fields.ends[:, 0]
    found = np.full(len(begins), -1, np.int8)
    one = ends - begins == 1
    found[one] = _OPS[fields.data[begins[one]]]
    return found


def _commit_ts(fields: Fields) -> Indexes:
    """0 for what is no TSO."""
    begins, lengths = fields.begins[:, 3], fields.ends[:, 3] - fields.begins[:, 3]
    found = np.zeros(len(begins), np.int64)
    for length in np.unique(lengths).tolist():
        if not 0 < length <= _DIGITS:
            continue
        here = np.flatnonzero(lengths == length)
        digits = fields.data[begins[here][:, None] + np.arange(length)].astype(np.int64) - ord("0")
        fine = ((digits >= 0) & (digits <= 9)).all(axis=1)
        value = np.zeros(len(here), np.int64)
        for place in range(length):
            value = value * 10 + digits[:, place]
        found[here[fine]] = value[fine]
    return found


def _error(head: TableHead, fits: bool) -> Error:
    if fits:
        return Error("malformed", "a field of the row cannot be read as its file is written")
    counts = sorted({each.fields for each in (head, *head.others)})
    return Error(
        "malformed",
        f"the row has other than {' or '.join(map(str, counts))} fields ({len(head.columns)} "
        f"columns of {head.name}): is the source URI as [sink.csv] of the changefeed, and does "
        "the changefeed's file have TiCDC's [[sink.column-selectors]]? A row lacks VIRTUAL columns,"
        " too: if the folder has no CREATE TABLE of the table, give it in --schema-file",
    )


def _with_heads(block: Block, head: TableHead) -> Block:
    """A dead letter has all that decodes it."""
    table, told = block.table(), head.to_json()
    place = table.schema.get_field_index("value")
    values = [
        None if each is None else with_head(told, each) for each in table["value"].to_pylist()
    ]
    field = table.schema.field(place)
    return replace(block, body=ipc(table.set_column(place, field, pa.array(values, field.type))))
