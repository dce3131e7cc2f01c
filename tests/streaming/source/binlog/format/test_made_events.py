"""Row events made by hand: table IDs, statements, and row images of every kind of garbage."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, Block, Kind
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.charsets import Charset
from streaming.source.binlog.format.events import joined
from streaming.source.binlog.format.faults import BAD_CELL, BAD_EVENT, NO_TABLE_MAP
from streaming.source.binlog.format.type_codes import EventType
from tests.streaming.source.binlog.binlogs import made_event, wanted

INT, VARCHAR, DATE, DECIMAL, ENUM = 3, 15, 10, 246, 254
META = {INT: b"", VARCHAR: b"\x78\x00", DATE: b"", DECIMAL: b"\x05\x02", ENUM: b"\xf7\x01"}
CHARSETS = {45: Charset("utf-8", 4)}


def table_map(
    table_id: int, columns: Sequence[tuple[str, int]], name: str = "t", *, metadata: bytes = b""
) -> bytes:
    """All columns may be NULL; texts are utf8mb4; an ENUM has the labels x and y."""
    body = table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + bytes([len(name)]) + name.encode()
    body += b"\0" + bytes([len(columns), *(kind for _, kind in columns)])
    metas = b"".join(META[kind] for _, kind in columns)
    body += bytes([len(metas)]) + metas + b"\xff" * ((len(columns) + 7) // 8)
    names = b"".join(bytes([len(each)]) + each.encode() for each, _ in columns)
    body += b"\2\1\x2d" + b"\4" + bytes([len(names)]) + names
    if any(kind == ENUM for _, kind in columns):
        body += b"\6\5\2\1x\1y" + b"\x0a\1\x2d"
    return made_event(EventType.TABLE_MAP, body + metadata)


def rows(
    table_id: int,
    images: bytes,
    count: int = 2,
    *,
    kind: int = EventType.WRITE_ROWS_V1,
    end: int = 1,
) -> bytes:
    """``end``: whether the statement ends with it."""
    bitmaps = b"\xff" * ((count + 7) // 8) * (2 if kind in (24, 31) else 1)
    extra = b"\2\0" if kind >= EventType.WRITE_ROWS else b""
    head = table_id.to_bytes(6, "little") + struct.pack("<H", end) + extra
    return made_event(kind, head + bytes([count]) + bitmaps + images)


def image(number: int, text: bytes) -> bytes:
    return b"\0" + struct.pack("<i", number) + bytes([len(text)]) + text


def read(
    *events: bytes, maps: tuple[bytes, ...] = (), tables: Sequence[str] = ("d.t", "d.u")
) -> list[Block]:
    data, at = joined(events)
    one = Slice(
        data=data,
        at=at,
        position=np.arange(len(at)),
        commit_ts=np.full(len(at), 5),
        maps=maps,
        checksum=True,
        is_mariadb=True,
        charsets=CHARSETS,
    )
    return list(row_blocks(one, "0", wanted(*tables)))


def data_of(blocks: Sequence[Block]) -> list[tuple[str, object]]:
    return [
        (block.name.table, row)
        for block in blocks
        if block.kind == Kind.ROW
        for row in block.table()["data"].to_pylist()
    ]


def bad_of(blocks: Sequence[Block]) -> list[tuple[TableName, int, str]]:
    return [
        (block.name, row["position"], row["error_class"])
        for block in blocks
        if block.kind == Kind.BAD
        for row in block.table().to_pylist()
    ]


AB = [("a", INT), ("b", VARCHAR)]
XY = [("x", INT), ("y", VARCHAR)]


def test_one_table_id_and_size_but_two_maps():
    """As behind a restart of the server, or a column that was renamed."""
    blocks = read(
        *(table_map(7, AB), rows(7, image(1, b"one"))),
        *(table_map(7, XY), rows(7, image(2, b"two"))),
        *(table_map(7, AB), rows(7, image(3, b"three"))),
    )
    assert data_of(blocks) == [
        ("t", {"a": 1, "b": "one"}),
        ("t", {"a": 3, "b": "three"}),
        ("t", {"x": 2, "y": "two"}),
    ]


def test_two_table_ids_of_one_shape_are_one_block():
    blocks = read(
        *(table_map(7, AB), rows(7, image(1, b"one"))),
        *(table_map(8, AB), rows(8, image(2, b"two"))),
    )
    assert len(blocks) == 1
    assert data_of(blocks) == [("t", {"a": 1, "b": "one"}), ("t", {"a": 2, "b": "two"})]


def test_several_tables_of_one_statement():
    blocks = read(
        *(table_map(7, AB), table_map(8, XY, "u"), table_map(9, AB, "v")),
        *(rows(8, image(1, b"u"), end=0), rows(7, image(2, b"t"), end=0), rows(9, image(3, b"v"))),
    )
    assert [block.name.table for block in blocks] == ["u", "t", "v"]
    assert blocks[2].body is None


def test_a_table_id_ends_with_its_statement():
    blocks = read(table_map(7, AB), rows(7, image(1, b"one")), rows(7, image(2, b"two")))
    assert data_of(blocks) == [("t", {"a": 1, "b": "one"})]
    assert bad_of(blocks) == [(NO_TABLE, 2, NO_TABLE_MAP)]


def test_maps_from_before_the_slice():
    first, second = rows(7, image(1, b"one"), end=0), rows(7, image(2, b"two"))
    assert len(data_of(read(first, second, maps=(table_map(7, AB),)))) == 2
    assert bad_of(read(first, second)) == [(NO_TABLE, 0, NO_TABLE_MAP), (NO_TABLE, 1, NO_TABLE_MAP)]
    broken = table_map(7, AB)[:-1] + b"\0"
    assert len(bad_of(read(first, second, maps=(broken,)))) == 2


def test_an_event_that_ends_a_statement_without_rows():
    assert read(rows(0xFFFFFF, b"", 0)) == []


@pytest.mark.parametrize(
    "images",
    [
        image(1, b"one")[:-1],  # a text that ends beyond the event
        image(1, b"one") + b"\0",  # no more than a bitmap
        image(1, b"one") + b"\0\1\0\0\0\xff",
        image(1, b"one") + b"\0\1",
    ],
)
@pytest.mark.parametrize("others", [0, 30])
def test_an_image_that_ends_beyond_its_event(images: bytes, others: int):
    """The other events of the table are read. (Many are read another way than few.)"""
    good = [table_map(7, AB), rows(7, image(5, b"good"))] * others
    blocks = read(
        *good, table_map(7, AB), rows(7, images), table_map(7, AB), rows(7, image(9, b"z"))
    )
    name = TableName("d", "t")
    assert bad_of(blocks) == [(name, 2 * others + 1, BAD_EVENT)]
    assert [block.has_only_rows for block in blocks if block.kind == Kind.BAD] == [True]
    assert len(data_of(blocks)) == others + 1


def test_events_that_are_not_of_their_table():
    other_count = rows(7, image(1, b"one"), 3)
    odd = rows(7, image(1, b"one"), kind=EventType.UPDATE_ROWS_V1)
    ends_in_head = made_event(EventType.WRITE_ROWS_V1, bytes(7))
    ends_in_bitmap = made_event(EventType.WRITE_ROWS_V1, (7).to_bytes(6, "little") + b"\1\0\2")
    extra = made_event(EventType.WRITE_ROWS, (7).to_bytes(6, "little") + b"\1\0\xff\xff\2\xff")
    for each in (other_count, odd, ends_in_head, ends_in_bitmap, extra):
        blocks = read(table_map(7, AB), each, table_map(7, AB), rows(7, image(2, b"two")))
        assert [(position, kind) for _, position, kind in bad_of(blocks)] == [(1, BAD_EVENT)]
        assert data_of(blocks) == [("t", {"a": 2, "b": "two"})]


def test_a_table_map_that_means_nothing():
    body = table_map(7, AB)[19:-4]
    for size in range(8, len(body)):
        blocks = read(
            made_event(EventType.TABLE_MAP, body[:size]), rows(7, image(1, b"one")), tables=()
        )
        if bad_of(blocks):
            assert [position for _, position, _ in bad_of(blocks)] == [0, 1]


def test_values_that_cannot_be_read_are_errors_of_their_rows():
    columns = [("n", INT), ("t", VARCHAR), ("d", DECIMAL), ("e", ENUM)]
    row = b"\0" + struct.pack("<i", 1) + b"\2ok" + b"\x80\x01\x02" + b"\1"
    no_text = row.replace(b"\2ok", b"\2\xff\xfe")
    no_digits = row.replace(b"\x80\x01\x02", b"\xff\xff\xff")
    no_label = row[:-1] + b"\3"
    null = b"\x0e" + struct.pack("<i", 2)
    images = row + no_text + no_digits + no_label + null
    (block,) = read(table_map(7, columns), rows(7, images, 4))
    table = block.table()
    messages = table["error_message"].to_pylist()
    assert table["error_class"].to_pylist() == [None, BAD_CELL, BAD_CELL, BAD_CELL, None]
    assert messages[1] == r"column t: b'\xff\xfe' is not written in utf-8"
    assert messages[2] == "column d has a decimal with no digits"
    assert messages[3] == "column e has no label with this index"
    data = table["data"].to_pylist()
    assert [each["t"] for each in data] == ["ok", None, "ok", "ok", None]
    assert [each["e"] for each in data] == ["x", "x", "x", None, None]
    assert [str(each["d"]) for each in data] == ["1.02", "1.02", "None", "1.02", "None"]


def test_a_value_that_cannot_be_read_in_an_old_row():
    pair = image(1, b"\xff") + image(2, b"fine")
    (block,) = read(table_map(7, AB), rows(7, pair + pair[:0], kind=EventType.UPDATE_ROWS_V1))
    (row,) = block.table().to_pylist()
    assert row["error_class"] == BAD_CELL
    assert (row["old"], row["data"]) == ({"a": 1, "b": None}, {"a": 2, "b": "fine"})


def test_a_row_event_of_one_large_statement():
    """200,000 rows in one event, and an event of more than 16 MiB."""
    images = b"".join(image(n, b"x" * (n % 7)) for n in range(200_000))
    (block,) = read(table_map(7, AB), rows(7, images))
    table = block.table()
    assert table["index"].to_pylist() == list(range(200_000))
    assert [row["a"] for row in table["data"].to_pylist()] == list(range(200_000))
    (block,) = read(
        table_map(7, [("a", INT), ("b", INT)]),
        rows(7, b"\0" + b"\1\0\0\0\2\0\0\0" + (b"\0" + bytes(8)) * (2 << 20)),
    )
    assert block.rows == (2 << 20) + 1
