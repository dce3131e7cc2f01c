"""Rows as TiCDC writes them are read back, whatever the format and their values are; a text may be
cut anywhere, and garbage is a dead letter."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName, Ts
from streaming.protocols.contract import (
    DATA,
    LETTER_HEAD,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Block,
    Kind,
    Messages,
    WantedTable,
    with_head,
)
from streaming.protocols.csv import plain_rows
from streaming.protocols.csv.decoder import Text, decode, decode_text, first_row
from streaming.protocols.csv.fields import rows_of
from streaming.protocols.csv.table_head import TableHead

NAME = TableName("sh,op", 'o"rders')
COLUMNS = (("id", "bigint"), ("a", "varchar(20)"), ("b", "varbinary(9)"), ("c", "int"))
WANTED = {NAME: WantedTable(above_ts=Ts(0), key=None)}
FORMATS = {
    "plain": CsvFormat(),
    "hex and old": CsvFormat(binary="hex", has_old=True, has_handle_key=True),
    "no quote": CsvFormat(delimiter="|", quote="", has_old=True),
    "long": CsvFormat(delimiter="|+|", quote="'", null="NULL"),
    "long, no quote": CsvFormat(delimiter="ab", quote="", null="\\N"),
    "header": CsvFormat(has_header=True),
}
PIECES = ["", "a", "ab", "b", '"', "'", '""', ",", "|", "|+|", "\\", "\\\\", "\\N", "\r\n", "\n"]
PIECES += ["\r", "r", "n", "é", "日本", "[1 2]", " ", "\0", "NULL", "-1.5e+38"]


def head_of(csv: CsvFormat) -> TableHead:
    return TableHead(NAME, COLUMNS, ("id",), csv)


def field(csv: CsvFormat, value: Any) -> str:
    """As TiCDC formats one."""
    if value is None:
        return csv.null
    if isinstance(value, bytes):
        encoded = value.hex() if csv.binary == "hex" else base64.b64encode(value).decode()
        return field(csv, encoded)
    if not isinstance(value, str):
        return str(value)
    if csv.quote:
        return csv.quote + value.replace(csv.quote, csv.quote * 2) + csv.quote
    text = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return text.replace(csv.delimiter, "".join("\\" + each for each in csv.delimiter))


def line(csv: CsvFormat, op: str, ts: int, values: Sequence[Any], *, is_update: bool) -> bytes:
    cells: list[Any] = [op, NAME.table, NAME.schema]
    text = [field(csv, each) for each in cells]
    text.append(str(ts))
    if csv.has_old:
        text.append("true" if is_update else "false")
    if csv.has_handle_key:
        text.append(field(csv, values[0]))
    text += [field(csv, each) for each in values]
    return (csv.delimiter.join(text) + "\r\n").encode()


Change = tuple[int, int, tuple[Any, ...], tuple[Any, ...] | None]  # op, ts, values, old ones


def changes(rng: random.Random, count: int, csv: CsvFormat) -> Iterator[Change]:
    for number in range(count):
        op = rng.choice([OP_INSERT, OP_DELETE, OP_UPDATE])
        values = row(rng, csv)
        old = row(rng, csv) if op == OP_UPDATE and csv.has_old else None
        yield op, 470_000_000_000_000_000 + number, values, old


def row(rng: random.Random, csv: CsvFormat) -> tuple[Any, ...]:
    text = "".join(rng.choices(PIECES, k=rng.randrange(5)))
    if not csv.quote and text == csv.null and csv.null != "\\N":
        text += "."
    return (
        rng.randrange(-5, 5),
        rng.choice([None, text, text]),
        rng.choice([None, b"", rng.randbytes(rng.randrange(6))]),
        rng.choice([None, 7, -12]),
    )


def text_of(csv: CsvFormat, found: Sequence[Change]) -> list[bytes]:
    """The lines of each change."""
    lines = []
    for op, ts, values, old in found:
        if old is not None:
            both = (
                line(csv, "D", ts, old, is_update=True),
                line(csv, "I", ts, values, is_update=True),
            )
            lines.append(b"".join(both))
        else:
            letter = {OP_INSERT: "I", OP_DELETE: "D", OP_UPDATE: "U"}[op]
            lines.append(line(csv, letter, ts, values, is_update=False))
    return lines


def read(
    csv: CsvFormat, text: bytes, *, position: int = 0, is_whole: bool = True, most: int = 1_000_000
) -> list[Block]:
    of = Text(
        part="p",
        text=text,
        position=position,
        head=head_of(csv),
        is_first=position == 0,
        is_whole=is_whole,
    )
    return list(decode_text(of, WANTED, latest_ts=1 << 62, start_ts=0, most_rows=most))


def rows(blocks: Sequence[Block]) -> dict[int, Change]:
    """By position."""
    found = {}
    for block in blocks:
        if block.kind is not Kind.ROW:
            continue
        assert block.name == NAME
        for each in block.table().to_pylist():
            old = each.get(OLD)
            found[each["position"]] = (
                each["op"],
                each["commit_ts"],
                values_of(each[DATA]),
                None if old is None else values_of(old),
            )
    return found


def values_of(cells: dict[str, Any]) -> tuple[Any, ...]:
    id_, a, b, c = cells.values()
    return whole(id_), a, b, whole(c)


def whole(text: str | None) -> int | str | None:
    """What garbage has made of a number stays a text."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", [*range(5), 137, 139])
def test_what_was_written_is_read(name: str, seed: int) -> None:
    csv, rng = FORMATS[name], random.Random(seed)
    found = list(changes(rng, 60, csv))
    lines = text_of(csv, found)
    header = b'"ticdc-meta$operation","x"\r\n' if csv.has_header else b""
    text = header + b"".join(lines)
    at, expected = len(header), {}
    for change, of in zip(found, lines, strict=True):
        expected[at] = change
        at += len(of)
    blocks = read(csv, text)
    assert rows(blocks) == expected
    assert not [each for each in blocks if each.kind is Kind.BAD]
    assert blocks[-1].last == len(text)
    for place, of in zip(expected, lines, strict=True):
        row = of.removesuffix(b"\r\n")
        for end, is_whole in ((None, True), (place + len(of), False)):
            assert first_row(text[place:end], csv, is_whole=is_whole) == row
        cut = text[place : place + len(row) - 1]
        assert first_row(cut, csv, is_whole=False) in (None, row.rpartition(b"\n")[0])
    # Cut anywhere, and read on from there.
    cut, found_rows = rng.randrange(len(text)), {}
    begin = 0
    for end in (cut, len(text)):
        some = read(csv, text[begin:end], position=begin, is_whole=end == len(text))
        found_rows |= rows(some)
        begin = some[-1].last
    assert found_rows == expected
    begin, found_rows = 0, {}
    while begin < len(text):
        some = read(csv, text[begin:], position=begin, most=7)
        found_rows |= rows(some)
        begin = some[-1].last
    assert found_rows == expected


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_garbage_is_in_exactly_one_block(name: str, seed: int) -> None:
    csv, rng = FORMATS[name], random.Random(seed)
    text = bytearray(b"".join(text_of(csv, list(changes(rng, 30, csv)))))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text))
        text[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    blocks = read(csv, bytes(text))
    assert blocks[-1].last == len(text)
    seen = [each for block in blocks[:-1] for each in block.table()["position"].to_pylist()]
    assert len(seen) == len(set(seen))
    merged = sum(1 for change in rows(blocks).values() if change[3] is not None)
    assert blocks[-1].rows == len(seen) + merged


def test_a_letter_is_a_row_that_stands_for_itself() -> None:
    csv = FORMATS["hex and old"]
    found = list(changes(random.Random(3), 9, csv))
    lines = text_of(csv, found)
    blocks = read(csv, b"".join(lines))
    (block,) = (each for each in blocks if each.kind is Kind.ROW)
    head = block.table().schema.metadata[LETTER_HEAD]
    letters = [with_head(head, each.removesuffix(b"\r\n")) for each in lines]
    messages = Messages(
        part="", positions=pa.array(range(9)), values=pa.array([*letters[:8], b"x"], pa.binary())
    )
    again = list(decode(messages, WANTED))
    assert list(rows(again).values()) == found[:8]
    (bad,) = (each for each in again if each.kind is Kind.BAD)
    assert (bad.first, bad.rows) == (8, 1)


def test_a_bad_row_keeps_its_columns_beside_its_bytes() -> None:
    csv = FORMATS["plain"]
    good, bad = text_of(csv, [(OP_INSERT, 7, (1, "x", b"", 3), None)]), b'"I","x"\r\n'
    blocks = read(csv, b"".join([*good, bad]))
    (found,) = (each for each in blocks if each.kind is Kind.BAD)
    ((value,), (message,)) = (found.table()[n].to_pylist() for n in ("value", "error_message"))
    assert value == with_head(head_of(csv).to_json(), bad)
    assert "other than 8 fields (4 columns of" in message
    assert found.has_only_rows
    assert found.name == NAME


def test_a_text_that_go_wrote_as_bytes_is_a_text() -> None:
    """Quotes tell it from a text in brackets."""
    csv = FORMATS["plain"]
    prefix = line(csv, "I", 9, (1, "x", None, None), is_update=False)
    text = prefix.replace(b'"x"', b"[110 195 169]") + prefix.replace(b'"x"', b'"[110 101]"')
    assert [each[2][1] for each in rows(read(csv, text)).values()] == ["né", "[110 101]"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_that_was_cut_off_is_a_dead_letter_wherever_that_was(name: str) -> None:
    """What is left of its last value is not its value. TiCDC writes the row again."""
    csv = FORMATS[name]
    whole = line(csv, "I", 8, (1, "x", None, None), is_update=False)
    torn = line(csv, "I", 9, (12, "yyy", None, None), is_update=False)
    for cut in range(1, len(torn) - 1):
        taken, bad, done = read(csv, whole + torn[:cut])
        assert (taken.kind, taken.rows) == (Kind.ROW, 1), cut
        assert (bad.kind, bad.rows, done.last) == (Kind.BAD, 1, len(whole) + cut)
    assert "was cut off" in str(bad.table().drop_columns(["value"]).to_pylist())


def test_rows_of_other_tables_are_counted_alone() -> None:
    csv = FORMATS["plain"]
    text = b"".join(text_of(csv, list(changes(random.Random(1), 5, csv))))
    of = Text(part="p", text=text, position=0, head=head_of(csv), is_first=True, is_whole=True)
    counted, done = decode_text(of, {}, latest_ts=1 << 62, start_ts=0, most_rows=99)
    assert (counted.kind, counted.body, counted.rows, done.rows) == (Kind.ROW, None, 5, 5)
    other = replace(head_of(csv), name=TableName("shop", "other"))
    bad, _ = decode_text(replace(of, head=other), {}, latest_ts=1 << 62, start_ts=0, most_rows=99)
    assert (bad.kind, bad.rows) == (Kind.BAD, 5)


@pytest.mark.parametrize("block_bytes", [1, 64, 1_000])
def test_a_chunk_is_several_of_arrows_blocks(
    block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines' ends and quotes lie on the blocks' borders; the longest row is a block."""
    csv, rng = FORMATS["plain"], random.Random(block_bytes)
    texts = ['a\r\n"b', "", "é" * 40, '""', ",", "x" * 300, None]
    found = [
        (OP_INSERT, 470_000_000_000_000_000 + n, (n, rng.choice(texts), b"\0", None), None)
        for n in range(400)
    ]
    lines = text_of(csv, found)
    monkeypatch.setattr(plain_rows, "_BLOCK_BYTES", block_bytes)
    text = b"".join(lines)
    whole_rows = rows_of(text, b",", ord('"'), is_whole=True)
    assert plain_rows.plain_rows(whole_rows, head_of(csv)) is not None
    assert [*rows(read(csv, text)).values()] == found


@pytest.mark.parametrize("behind", [b"", b"half of a row", b"a row\r\n", b"another key"])
@pytest.mark.parametrize("name", ["hex and old", "no quote"])
def test_an_old_row_alone_is_no_delete(name: str, behind: bytes) -> None:
    """TiCDC was killed while it wrote the new row, and writes both again."""
    csv = FORMATS[name]
    row, ts = (7, "a", b"b", 1), 470_000_000_000_000_001
    pair = [line(csv, op, ts, row, is_update=True) for op in "DI"]
    more = {
        b"half of a row": pair[1][:-9],
        b"a row\r\n": line(csv, "I", ts, row, is_update=False),
        b"another key": line(csv, "I", ts + 1, row, is_update=True),
    }.get(behind, behind)
    text = Text(
        part="p",
        text=line(csv, "D", ts - 1, row, is_update=False) + pair[0] + more,
        position=0,
        head=head_of(csv),
        is_first=True,
        is_whole=True,
    )
    blocks = list(decode_text(text, WANTED, latest_ts=1 << 62, start_ts=0, most_rows=99))
    rows = [each for b in blocks if b.kind is Kind.ROW for each in b.table().to_pylist()]
    assert rows[0]["op"] == OP_DELETE
    assert [each["op"] for each in rows[1:]] == [OP_INSERT] * (
        behind in (b"a row\r\n", b"another key")
    )
    bad = [each for b in blocks if b.kind is Kind.BAD for each in b.table().to_pylist()]
    assert "its new row is not behind it" in bad[0]["error_message"]
    assert len(bad) == 1 + (behind == b"half of a row")
    waiting = replace(text, text=text.text.removesuffix(more), is_whole=False)
    *_, done = decode_text(waiting, WANTED, latest_ts=1 << 62, start_ts=0, most_rows=99)
    assert (done.rows, done.last) == (1, len(line(csv, "D", ts - 1, row, is_update=False)))


@pytest.mark.parametrize("name", FORMATS)
def test_the_number_of_fields_tells_what_rows_have(name: str) -> None:
    """With ``output-handle-key`` a field more or not; with a column selector all or some."""
    csv = replace(FORMATS[name], has_handle_key=False)
    found = list(changes(random.Random(name), 40, csv))
    text = b"garbage\r\n" + b"".join(text_of(csv, found))
    few = replace(head_of(csv), columns=COLUMNS[:2])
    key = replace(head_of(csv), csv=replace(csv, has_handle_key=True))
    wanted = rows(read(csv, text))
    for head in (replace(few, others=(key, head_of(csv))), replace(key, others=(head_of(csv),))):
        of = Text(part="p", text=text, position=0, head=head, is_first=False, is_whole=True)
        made = list(decode_text(of, WANTED, latest_ts=1 << 62, start_ts=0, most_rows=1_000))
        assert rows(made) == wanted
        assert len(wanted) == 40
        (bad,) = [block for block in made if block.kind is Kind.BAD]
        assert bad.rows == 1
        (letter,) = bad.table()["value"].to_pylist()
        assert TableHead.of(letter.partition(b"\n")[2].partition(b"\n")[0]) == head_of(csv)
