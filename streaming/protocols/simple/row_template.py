"""How the plain rows of a table look, byte by byte, and reading many of them at once.

    head of the table, tableID ,"type":"UPDATE","commitTs":…,"buildTs":…,"schemaVersion":…
        ,"checksum":{"version":…,"corrupted":false,"current":…,"previous":…}    (perhaps)
        ,"data":{"a":"1","b":null,"t":{"location":"UTC","value":"…"}},"old":{…}}

One of the rows, read slowly, gives the schema's version, the columns and the zone to expect. A row
is only taken if every byte outside its values is as expected. An old row may lack columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.protocols.contract import DAMAGED, OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Mask, Text, Walk
from streaming.protocols.json_text.strict_json import GO_ESCAPED, Malformed, parse
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays
from streaming.protocols.rows.side_by_side import WalkedRows
from streaming.protocols.simple.strict_parser import NO_CRC, event

_MEMBERS: Final = (
    *("version", "database", "table", "tableID", "type", "commitTs", "buildTs", "schemaVersion"),
)
_COMMA, _QUOTE, _BRACE, _N = b',"{n'
_NULL: Final = b"null"
_TYPE, _BEHIND_TYPE = b',"type":"', b'","commitTs":'
_DATA, _OLD = b',"data":', b',"old":'
_CHECKSUM: Final = "checksum"
_OF_CHECKSUM: Final = ["version", "corrupted", "current", "previous"]
_OPS: Final = np.full(256, -1, np.int8)
_OPS[ord("D")], _OPS[ord("I")], _OPS[ord("U")] = OP_DELETE, OP_INSERT, OP_UPDATE
_WORD: Final = 6  # INSERT, UPDATE and DELETE have as many letters
_WORDS: Final = {OP_DELETE: b"DELETE", OP_INSERT: b"INSERT", OP_UPDATE: b"UPDATE"}


class HeadWalk(Walk):
    """Rows whose beginning, up to the number behind ``tableID``, is known."""

    def __init__(self, text: Text, head: bytes, quotes: int) -> None:
        first = np.searchsorted(text.quotes, text.starts)
        super().__init__(text, text.starts + len(head), first + quotes)

    def op_and_ts(self) -> tuple[npt.NDArray[np.int8], Indexes]:
        """On to behind the commit-ts."""
        self._number()
        self.expect(_TYPE)
        op = _OPS[self.text.byte(self.at)]
        self.is_right &= op >= 0
        for each, word in _WORDS.items():
            self.is_right &= (op != each) | self.text.has(word, self.at)
        self.at = self.at + _WORD
        self.expect(_BEHIND_TYPE)
        return op, self._number()

    def checksums(self, opening: bytes) -> tuple[Indexes, Indexes]:
        """The current and the previous one. Goes on behind their object."""
        self.expect(opening)
        current = self.number(self.text.quote(self.quote) - 1, may_be_zero=True)
        self.expect(b',"previous":')
        previous = self.number(self.text.quote(self.quote) - 2, may_be_zero=True)
        self.expect(b"}")
        return current, previous

    def _number(self) -> Indexes:
        """Up to the next name."""
        return self.number(self.text.quote(self.quote) - 1)


@dataclass(frozen=True, slots=True)
class Template:
    """``head`` and ``quotes``: the known beginning, and the quotes in it; ``zone``: how the value
    of a TIMESTAMP begins, up to its text; None: the sample has none; ``checksum``: how its object
    begins, up to the current one."""

    head: bytes
    quotes: int
    shape: Shape
    names: Sequence[bytes]  # of the columns, as they are written
    zone: bytes | None
    checksum: bytes | None

    @staticmethod
    def of(sample: bytes, head: bytes) -> Template | None:
        """From one message that begins like its table's; None where it is not plain."""
        try:
            fields = parse(sample)
            row = event(fields)
        except Malformed:
            return None
        if not isinstance(row, ParsedRow) or type(fields) is not dict:
            return None
        is_delete = row.op == OP_DELETE
        sides = [each for each in ("data", "old") if each in fields]
        found = fields.get(_CHECKSUM)
        members = [*_MEMBERS, *([] if found is None else [_CHECKSUM]), *sides]
        is_fine = found is None or ([*found] == _OF_CHECKSUM and row.checksum != DAMAGED)
        if [*fields] != members or row.error is not None or row.shape.only_old or not is_fine:
            return None
        if sides[:1] != (["old"] if is_delete else ["data"]) or (row.op == OP_INSERT) != (
            len(sides) == 1 and not is_delete
        ):
            return None
        if any("\\" in name or '"' in name for name in row.shape.columns):
            return None
        zone = _zone(fields[sides[0]])
        names = [_written(name, sample) for name in row.shape.columns]
        quotes = head.count(b'"') - head.count(b'\\"')
        return Template(head, quotes, row.shape, names, zone, _opening(found))

    def read(
        self, values: pa.BinaryArray, positions: Indexes, key: Sequence[str] | None
    ) -> tuple[RowArrays, Indexes]:
        """As `side_by_side.Template.read`; all messages have this head."""
        text = Text.of(values)
        walk = _RowWalk(text, self.head, self.quotes)
        op, commit_ts = walk.op_and_ts()
        walk.expect(b',"buildTs":')
        walk.number(text.quote(walk.quote) - 1)
        walk.expect(b',"schemaVersion":%d' % (self.shape.version or 0))
        checksums = None
        if self.checksum is not None:
            current, previous = walk.checksums(self.checksum)
            checksums = np.where(op == OP_DELETE, previous, current)
            walk.is_right &= (current < NO_CRC) & (previous < NO_CRC)
        columns = list(zip(self.shape.columns, self.names, strict=True))
        walk.side_begins(op == OP_DELETE)
        data = walk.side(columns, self.zone, may_lack=False)
        old: dict[str, Cells] = {}
        old_at = np.flatnonzero(walk.is_right & (op == OP_UPDATE))
        if len(old_at):
            before = walk.rows(old_at)
            before.expect(_OLD)
            old = before.side(columns, self.zone, may_lack=True)
            walk.join(before, old_at)
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
            checksums=checksums,
        )
        return rows.plain(key)


class _RowWalk(HeadWalk):
    def rows(self, rows: Indexes) -> _RowWalk:
        part = object.__new__(_RowWalk)
        Walk.__init__(part, self.text, self.at[rows], self.quote[rows])
        return part

    def side_begins(self, is_old: Mask) -> None:
        """On to the only side of a DELETE, and to the new one of the others."""
        text, at = self.text, self.at
        self.is_right &= np.where(is_old, text.has(_OLD, at), text.has(_DATA, at))
        self.at = at + np.where(is_old, len(_OLD), len(_DATA))
        self.quote = self.quote + 2

    def side(
        self, columns: Sequence[tuple[str, bytes]], zone: bytes | None, *, may_lack: bool
    ) -> dict[str, Cells]:
        """An object of columns. Goes on behind it."""
        first = self.at
        self.is_right &= self.text.has(b"{", first)
        found = {name: self._column(head, first, zone, may_lack=may_lack) for name, head in columns}
        if may_lack:
            self.at = np.where(self.at == first, first + 1, self.at)
        self.expect(b"}")
        return found

    def _column(self, head: bytes, first: Indexes, zone: bytes | None, *, may_lack: bool) -> Cells:
        text, at = self.text, self.at
        is_named = text.has(head, at + 1)
        is_named &= (text.byte(at) == _COMMA) | (at == first)
        begins, quote = at + (1 + len(head)), self.quote + 2
        letters = text.byte(begins)
        is_null = letters == _N
        if has_null := bool(is_null.any()):
            is_null = text.has(_NULL, begins)
        is_located = letters == _BRACE
        if zone is not None and is_located.any():
            is_located &= text.has(zone, begins)
            quote = quote + np.where(is_located, zone.count(b'"'), 0)
            inner = begins + np.where(is_located, len(zone), 0)
        else:
            is_located, inner = np.zeros(len(at), np.bool_), begins
        is_text = text.byte(inner) == _QUOTE
        last = quote + 1
        ends = text.quote(last)
        escaped = dict[int, str]()
        is_escaped = np.zeros(len(at), np.bool_)
        if len(text.is_escaped):
            is_escaped = text.is_escaped.take(last, mode="clip")
            rows = np.flatnonzero(self.is_right & is_named & is_text & ~is_located & is_escaped)
            escaped = self._unescaped(inner + 1, ends, rows)
        behind, after = ends + 1, quote + 2
        is_whole = ends >= inner + 1
        if has_located := bool(is_located.any()):
            is_whole &= ~is_located | ((text.byte(behind) == ord("}")) & ~is_escaped)
            behind = behind + is_located
        if has_null:
            behind = np.where(is_null, begins + len(_NULL), behind)
            after = np.where(is_null, quote, after)
        is_text &= is_whole
        is_there = is_named & (is_text | is_null)
        self.is_right &= is_there | ~is_named if may_lack else is_there
        self.at = np.where(is_there, behind, at) if may_lack else behind
        self.quote = np.where(is_there, after, self.quote) if may_lack else after
        cell_begins, cell_ends = inner + 1, ends
        if has_located:  # the whole object is the cell
            cell_begins = np.where(is_located, begins, cell_begins)
            cell_ends = np.where(is_located, behind, cell_ends)
        is_text, is_null = is_text & is_named, is_null & is_named
        if not is_text.all():
            cell_begins = np.where(is_text, cell_begins, at)
        return Cells(text, cell_begins, cell_ends, is_text, is_null, escaped)


def _written(name: str, sample: bytes) -> bytes:
    """Go's encoder may escape more than it must."""
    plain = f'"{name}":'
    return plain.encode() if plain.encode() in sample else plain.translate(GO_ESCAPED).encode()


def _opening(checksum: Mapping[str, Any] | None) -> bytes | None:
    """How its object begins, up to the current one."""
    if checksum is None:
        return None
    version = checksum["version"]
    return f',"checksum":{{"version":{version},"corrupted":false,"current":'.encode()


def _zone(values: Mapping[str, Any]) -> bytes | None:
    """How a TIMESTAMP's value begins, as the encoder writes it."""
    for value in values.values():
        if type(value) is dict and [*value] == ["location", "value"]:
            return f'{{"location":"{value["location"]}","value":'.encode()
    return None
