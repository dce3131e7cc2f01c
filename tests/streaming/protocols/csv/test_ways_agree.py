"""Arrow's reader and ours read the same fields, or Arrow's is not asked: `plain_rows` is right on
rows that `fields` and `cells` read, whatever garbage stands among them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from streaming.protocols.csv import quotes
from streaming.protocols.csv.decoder import _read
from streaming.protocols.csv.fields import Rows, rows_of
from streaming.protocols.csv.plain_rows import plain_rows
from streaming.protocols.csv.quotes import Quotes
from streaming.protocols.csv.table_head import TableHead
from streaming.protocols.json_text import byte_places
from streaming.protocols.json_text.byte_places import places_of
from tests.streaming.protocols.csv.test_decoder import COLUMNS, changes, head_of, text_of

FORMATS = {
    "quotes": CsvFormat(),
    "old rows": CsvFormat(has_old=True, has_handle_key=True),
    "apostrophes": CsvFormat(delimiter=";", quote="'", null="NULL"),
    "empty nulls": CsvFormat(null=""),
    "no quote": CsvFormat(delimiter="|", quote=""),
    "no quote, old rows": CsvFormat(delimiter=",", quote="", has_old=True),
}
PLAIN = TableHead(TableName("shop", "orders"), COLUMNS, ("id",), CsvFormat())
BITS = [b'"', b'""', b",", b"\r", b"\n", b"\r\n", b"\\", b"\\N", b"[", b"[1 2]", b"a", b"\xff", b""]
BITS += [b"'", b"''", b"|", b";", b"\0", b" ", b'",', b',"', b"true", b"I", b"\xef\xbb\xbf"]


def whole(text: bytes, csv: CsvFormat, *, is_whole: bool = True) -> Rows:
    quote = ord(csv.quote) if csv.quote else None
    return rows_of(text, csv.delimiter.encode(), quote, is_whole=is_whole)


def same(text: bytes, head: TableHead) -> bool:
    """Whether Arrow was asked; then it said the same."""
    rows = whole(text, head.csv)
    found = None if rows.is_cut else plain_rows(rows, head)
    if found is None:
        return False
    told = _read(rows, head, is_wanted=True)
    assert told.good.all(), text
    assert told.at.tolist() == list(range(len(rows))), text
    assert told.op.tolist() == found.op.tolist(), text
    assert told.commit_ts.tolist() == found.commit_ts.tolist(), text
    assert told.is_update.tolist() == found.is_update.tolist(), text
    assert [each.to_pylist() for each in told.cells] == [c.to_pylist() for c in found.cells], text
    counted = plain_rows(rows, head, is_wanted=False)
    assert counted is not None
    assert counted.commit_ts.tolist() == found.commit_ts.tolist(), text
    return True


def mutated(lines: Sequence[bytes], rng: random.Random, count: int) -> bytes:
    text = bytearray(b"".join(lines))
    for _ in range(count):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.randrange(3)] = rng.choice(BITS)
    return bytes(text)


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_written_is_read_alike(name: str) -> None:
    csv, asked = FORMATS[name], 0
    for seed in range(60):
        rng = random.Random(seed)
        lines = text_of(csv, list(changes(rng, 1 + seed % 7, csv)))
        asked += same(b"".join(lines), head_of(csv))
    assert asked > 5 or not csv.quote  # the table's name has a delimiter in it


@pytest.mark.parametrize("name", FORMATS)
def test_garbage_is_read_alike(name: str) -> None:
    csv = FORMATS[name]
    head, asked = TableHead(PLAIN.name, COLUMNS, ("id",), csv), 0
    for seed in range(400):
        rng = random.Random(seed)
        cells = _lines(csv, rng)
        asked += same(mutated(cells, rng, seed % 4), head)
    assert asked > 40


def _lines(csv: CsvFormat, rng: random.Random) -> list[bytes]:
    """Rows with fields that are seldom as TiCDC writes them."""
    quote, lines = csv.quote, []
    texts = ["", "x", csv.null, "a b", "-1", "[7]", "é", quote, "x" + quote, quote + "x", "\r\n"]
    for number in range(rng.randrange(1, 5)):
        head = [f"{quote}{each}{quote}" for each in (rng.choice("IUD"), "orders", "shop")]
        head.append(str(470_000_000_000_000_000 + number))
        head += ["false"] * csv.has_old + ["1"] * csv.has_handle_key
        fields = []
        for name, _ in COLUMNS:
            text = "" if name == "b" else rng.choice(texts if rng.random() < 0.2 else texts[:4])
            doubled = text.replace(quote, quote * 2) if quote else text
            written = f"{quote}{doubled}{quote}"
            fields.append(written if rng.random() < 0.6 else text)
        lines.append((csv.delimiter.join([*head, *fields]) + "\r\n").encode())
    return lines


@pytest.mark.parametrize(
    ("csv", "line"),
    [
        (CsvFormat(), b'"I","orders","shop",470000000000000001,1,,,"x"y\n'),
        (CsvFormat(), b'"I","orders","shop",4700000000000000012,1,,,"x"\r\n'),
        (CsvFormat(), b'"I","orders","shop",47000000000000000,1,,,"x"\r\n'),
        (CsvFormat(), b'"I","orders","shop",000000000000000000,1,,,"x"\r\n'),
        (CsvFormat(), b'"I","orders","shop","470000000000000001",1,,,"x"\r\n'),
        (CsvFormat(), b'I,"orders","shop",470000000000000001,1,,,"x"\r\n'),
        (CsvFormat(has_old=True), b'"I","orders","shop",470000000000000001,"true",1,,,\r\n'),
        (CsvFormat(has_old=True), b'"I","orders","shop",470000000000000001,truest,1,,,\r\n'),
    ],
)
def test_a_row_that_begins_or_ends_unlike_the_others_is_not_given_to_arrow(
    csv: CsvFormat, line: bytes
) -> None:
    head = replace(PLAIN, csv=csv)
    is_update = b"true," if csv.has_old else b""
    first = b'"I","orders","shop",470000000000000000,' + is_update + b'1,,,"x"\r\n'
    assert same(first, head)
    assert plain_rows(whole(first + line, csv), head) is None
    assert plain_rows(whole(line + first, csv), head) is None


@pytest.mark.parametrize("piece", [64, 128, 1 << 20])
def test_quotes_are_seen_as_one_by_one(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (quotes, byte_places):
        monkeypatch.setattr(module, "PIECE", piece)
    letters = np.frombuffer(b'",\n\ra', np.uint8)
    for seed in range(300):
        dice = np.random.default_rng(seed)
        data = dice.choice(letters, int(dice.integers(0, 400)))
        inside = np.cumsum(data == ord('"')) % 2 == 1
        found = Quotes.of(data, ord('"'), ord(","), has_cr=True)
        bits = np.unpackbits(found.inside.view(np.uint8), bitorder="little")[: len(data)]
        assert bits.tolist() == inside.tolist()
        assert found.lines.tolist() == np.flatnonzero((data == ord("\n")) & ~inside).tolist()
        assert found.odd.tolist() == _odd(bytes(data), inside.tolist())
        assert places_of(data, ord("a")).tolist() == np.flatnonzero(data == ord("a")).tolist()


def _odd(text: bytes, inside: Sequence[bool]) -> list[int]:
    found = []
    for at in (number for number, byte in enumerate(text) if byte == ord('"')):
        if inside[at]:
            before = text[at - 1 : at]
            is_behind = before in (b"", b",") or (before in (b"\n", b'"') and not inside[at - 1])
            if not is_behind:
                found.append(at)
        else:
            is_before = text[at + 1 : at + 2] in (b",", b'"') or text[at + 2 : at + 3] == b"\n"
            if not is_before:
                found.append(at)
    return found
