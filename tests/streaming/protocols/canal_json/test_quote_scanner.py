"""Rows that are read side by side: what may stand in their texts, and where one ends too soon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streaming.protocols.canal_json import decoder
from streaming.protocols.rows import alike
from tests.streaming.protocols.canal_json.reading import (
    NAME,
    in_order,
    message,
    one_by_one,
    plain,
    read,
    rows_like,
    wanted,
)

ROWS = rows_like(12)


@pytest.fixture(autouse=True)
def slowly(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The messages that are read one by one; two are enough for another way."""
    found: list[bytes | None] = []

    def reading(value: bytes | None) -> Any:
        found.append(value)
        return slow(value)

    slow = decoder.read
    monkeypatch.setattr(decoder, "read", reading)
    monkeypatch.setattr(alike, "FEW", 2)
    return found


@pytest.mark.parametrize(
    "text", ['{"a": "b"}', "\\", '\\"', '"', "\n\t\x00", "<b>&", "\u2028😀", "a\\\\", ""]
)
@pytest.mark.parametrize("key", [None, ("id",)])
def test_texts_with_escapes_are_read_at_once(
    text: str, key: tuple[str, ...] | None, slowly: list[bytes | None]
) -> None:
    texts = [text, text + "x", None, "x" + text, text + text, "plain"]
    values: list[bytes | None] = [
        message(
            type="UPDATE",
            data=[{"id": str(n), "v": texts[n % 6]}],
            old=[{"v": texts[n % 5]} if n % 3 else {"id": text}],
        ).replace(b"<", rb"\u003c")
        for n in range(30)
    ]
    found = in_order(values, wanted(NAME, key=key))
    assert [row["data"]["v"] for row in found] == [texts[n % 6] for n in range(30)]
    assert slowly == []
    assert plain(read(values, wanted(NAME, key=key))) == plain(
        one_by_one(values, wanted(NAME, key=key))
    )


@pytest.mark.parametrize(
    "written",
    [rb"\ud83d", rb"\ude00\ud83d", rb"\x", rb"\u12", rb"\u12g4", b"\x01", b"\xff", rb"\'"],
)
@pytest.mark.parametrize("name", [b"data", b"old"])
def test_what_is_no_text_is_bad(written: bytes, name: bytes) -> None:
    rows = [
        message(type="UPDATE", old=[{"v": "-"}], data=[{"id": str(n), "v": "+"}]) for n in range(12)
    ]
    place = b'"-"' if name == b"old" else b'"+"'
    odd = rows[5].replace(place, b'"' + written + b'"')
    values: list[bytes | None] = [*rows[:5], odd, *rows[6:]]
    found = in_order(values, wanted(NAME))
    assert [row["kind"] for row in found] == ["row"] * 5 + ["bad"] + ["row"] * 6


def test_a_message_that_ends_too_soon_takes_nothing_of_the_next_one() -> None:
    row = message(type="UPDATE", old=[{"v": 'a"'}], data=[{"id": "1", "v": None}])
    for length in range(1, len(row)):
        for rest in (ROWS[1], row[length:], row[length:] + row):
            values: list[bytes | None] = [ROWS[0], row, row[:length], rest, row, ROWS[2]]
            tables = wanted(NAME)
            assert plain(read(values, tables)) == plain(one_by_one(values, tables)), (length, rest)


TYPES = b'{"id":"bigint","v":"varchar"},'


@pytest.mark.parametrize("types", [TYPES, b'{"idX:XbigintX,XvX:"varchar"},', b"-" * len(TYPES)])
@pytest.mark.parametrize("rest", [b"", b"}", b"\\", b'"', b'"old":null}'])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_message_that_ends_behind_its_types(types: bytes, rest: bytes, is_alone: bool) -> None:
    odd = ROWS[0][: ROWS[0].index(TYPES)] + types + rest
    values: list[bytes | None] = [b"-", *ROWS[:2], *([odd] if is_alone else [*ROWS[2:4], odd])]
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("end", [b'"}', b'"', b"", b'""', b'\\"}', b'"\\"}'])
def test_a_text_at_the_end_that_does_not_end(end: bytes) -> None:
    whole = [row[:-1] + b',"rowkey":"-"}' for row in ROWS]
    values: list[bytes | None] = [*whole, whole[0][: -len(b'"-"}')] + end]
    found = in_order(values, wanted(NAME))
    assert [row["kind"] for row in found] == ["row"] * 12 + ["bad"]


def test_no_message_of_a_part_has_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "PART_BYTES", 1)
    odd = [row.replace(b'"bigint"', b'"bigimt"') for row in ROWS]
    values: list[bytes | None] = [*ROWS[:2], *odd, *ROWS[2:]]
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("place", ["mysqlType", "old", "data", "_tidb"])
def test_another_text_in_all_messages(place: str, slowly: list[bytes | None]) -> None:
    """A later TiCDC may write more."""
    values: list[bytes | None] = []
    for n in range(12):
        fields = json.loads(ROWS[n])
        names = [*fields]
        names.insert(names.index(place) + 1, "rowkey")
        fields["rowkey"] = f'"{n}"'
        values.append(
            json.dumps({each: fields[each] for each in names}, separators=(",", ":")).encode()
        )
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))
    assert len(slowly) == 12  # by ``one_by_one`` alone
