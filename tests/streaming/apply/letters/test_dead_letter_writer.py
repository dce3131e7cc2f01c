"""Rows that cannot be applied get their messages back, a part of them at a time; each row is a
letter of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conf.settings import FilterSettings
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.dead_letters import DeadLetters, LetterWriter
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.apply.letters.letter_rows import letter_rows
from streaming.apply.letters.row_bytes import letter_decoder, rows_alone
from streaming.apply.values.row_errors import ERRORS
from streaming.changefeed.routes import routes_of
from streaming.source.contract import RAW
from tests.services.delta_rows import read_rows
from tests.streaming.apply.blocks import A
from tests.streaming.protocols.open import reading as open_protocol


def test_a_letter_of_a_fatal_class_stops_the_changefeed(tmp_path: Path) -> None:
    """``corruption-handle-level = error``: nothing is stored, and the others go on being stored."""

    def values(places: Mapping[str, Sequence[int]]) -> Iterator[pa.Table]:
        ((part, wanted),) = places.items()
        rows = [{"part": part, "position": at, "value": b"v"} for at in wanted]
        yield pa.Table.from_pylist(rows, RAW)

    writer = DeadLetterWriter(
        by=LetterWriter(changefeed_id="c", incarnation=1, term=None, check=lambda: None),
        dead_letters=DeadLetters(str(tmp_path)),
        values=values,
        identities=lambda: {"shop/0": "a topic's ID"},
        fail=False,
        fatal=("checksum",),
    )
    for at, error_class in enumerate(("cast", "checksum")):
        error = {"part": "shop/0", "position": at, "index": 0, "commit_ts": 10}
        told = {"error_class": error_class, "message": "why"}
        rows = pa.Table.from_pylist([error | told], ERRORS)
        if error_class == "cast":
            writer.add_rows({A: rows})
        else:
            with pytest.raises(TidelakeError, match="corruption-handle-level is 'error'"):
                writer.add_rows({A: rows})
    found = read_rows(tmp_path / "_tidelake" / "dead_letters")
    assert [each["position"] for each in found] == [0]


def test_messages_come_in_parts_and_one_that_is_gone_is_a_letter_too(tmp_path: Path) -> None:
    gone = 3

    def values(places: Mapping[str, Sequence[int]]) -> Iterator[pa.Table]:
        ((part, wanted),) = places.items()
        for first in range(0, len(wanted), 2):
            rows = [
                {"part": part, "position": at, "value": b"%d" % at}
                for at in wanted[first : first + 2]
                if at != gone
            ]
            yield pa.Table.from_pylist(rows, RAW)

    by = LetterWriter(changefeed_id="c", incarnation=1, term=None, check=lambda: None)
    dead_letters = DeadLetters(str(tmp_path))
    writer = DeadLetterWriter(
        by=by,
        dead_letters=dead_letters,
        values=values,
        identities=lambda: {"shop/0": "a topic's ID"},
        fail=False,
    )
    errors = [
        {"part": "shop/0", "position": at, "index": 0, "commit_ts": 10 + at,
         "error_class": "cast", "message": f"why {at}"}
        for at in (0, 1, 2, gone, 5, 7)
    ]  # fmt: skip

    writer.add_rows({A: pa.Table.from_pylist(errors, ERRORS)})

    found = sorted(read_rows(tmp_path / "_tidelake" / "dead_letters"), key=lambda r: r["position"])
    assert [(each["position"], each["message"], each["value"]) for each in found] == [
        (0, "why 0", b"0"),
        (1, "why 1", b"1"),
        (2, "why 2", b"2"),
        (gone, f"why {gone}", None),
        (5, "why 5", b"5"),
        (7, "why 7", b"7"),
    ]
    assert {each["identity"] for each in found} == {"a topic's ID"}
    assert writer.counts == {A: 6}


def test_rows_of_several_tables_in_one_message_are_letters_of_their_tables(tmp_path: Path) -> None:
    """Each has the bytes of one row: its letter is replayed, and the others are not touched."""
    tables = ("a", "b", "a", "b")
    message = open_protocol.message(
        *(
            (open_protocol.key(table=name), {"u": open_protocol.side({"id": n})})
            for n, name in enumerate(tables)
        )
    )
    writer = DeadLetterWriter(
        by=LetterWriter(changefeed_id="c", incarnation=1, term=None, check=lambda: None),
        dead_letters=DeadLetters(str(tmp_path)),
        values=lambda places: iter([pa.table([["p"], [7], [message]], schema=RAW)][: len(places)]),
        identities=lambda: {"p": "id"},
        alone=rows_alone("open-protocol"),
        fail=False,
    )
    by_table = {A: [0, 2], TableName("shop", "b"): [3]}
    for _ in range(2):  # they come again
        writer.add_rows({name: errors_at("p", 7, bad) for name, bad in by_table.items()})

    letters = read_rows(tmp_path / "_tidelake" / "dead_letters")
    found = sorted((each["table_name"], each["index"]) for each in letters)
    assert found == [("a", 0), ("a", 2), ("b", 3)]
    assert writer.counts == {A: 2, TableName("shop", "b"): 1}
    for each in letters:
        values = pa.chunked_array([pa.array([each["value"]], pa.binary())])
        name = TableName("shop", each["table_name"])
        rows = letter_rows(
            values, name, letter_decoder("open-protocol"), routes_of((), FilterSettings())
        )
        (block,) = rows.blocks
        (batch,) = block.batches()
        assert batch.column("data").to_pylist() == [{"id": str(each["index"])}]


def errors_at(part: str, position: int, indexes: Sequence[int]) -> pa.Table:
    of: dict[str, Any] = {"part": part, "position": position, "commit_ts": 10}
    rows = [{**of, "index": n, "error_class": "cast", "message": "why"} for n in indexes]
    return pa.Table.from_pylist(rows, ERRORS)
