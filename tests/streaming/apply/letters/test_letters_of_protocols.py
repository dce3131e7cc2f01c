"""Dead letters are decoded by the protocol that their messages have."""

from __future__ import annotations

import pyarrow as pa

from conf.settings import FilterSettings
from coordination.model import TableName
from streaming.apply.letters.letter_rows import NO_BYTES, letter_rows
from streaming.apply.letters.row_bytes import FailedRow, letter_decoder, rows_alone
from streaming.changefeed.routes import routes_of
from streaming.source.binlog.format.letters import NOT_ALONE
from tests.streaming.protocols.open import reading as open_protocol
from tests.streaming.protocols.simple import reading as simple

T = TableName("shop", "t")


def values(*messages: bytes | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(messages, pa.binary())])


def test_a_letter_of_open_protocol_has_its_key() -> None:
    side = open_protocol.side({"id": 7, "b": r"\x00"})
    message = open_protocol.message((open_protocol.key(), {"u": side}))
    found = letter_rows(
        values(message, message[:-1], None),
        T,
        letter_decoder("open-protocol"),
        routes_of((), FilterSettings()),
    )
    (block,) = found.blocks
    assert (block.first, block.rows) == (0, 1)
    assert found.others == {1: "not an open-protocol message", 2: NO_BYTES}


def test_letters_of_simple() -> None:
    other = simple.row(table="o")
    messages = (simple.row(), simple.bootstrap(), simple.watermark(5), other)
    found = letter_rows(
        values(*messages), T, letter_decoder("simple"), routes_of((), FilterSettings())
    )
    assert [block.first for block in found.blocks] == [0]
    assert {number: why.partition(":")[0] for number, why in found.others.items()} == {
        1: "it tells the schema of a table",
        2: "it is a watermark",
        3: "it is a row of shop.o",
    }


def test_an_event_of_a_binlog_is_no_letter_by_itself() -> None:
    found = letter_rows(
        values(b"x", None), T, letter_decoder("binlog"), routes_of((), FilterSettings())
    )
    assert (found.blocks, found.others) == ([], {0: NOT_ALONE, 1: NO_BYTES})


def test_letters_of_a_protocol_that_is_not_read_again_say_so() -> None:
    decode = letter_decoder("a new one")
    found = letter_rows(values(b"x", None), T, decode, routes_of((), FilterSettings()))
    assert found.blocks == []
    assert found.others[0].startswith("dead letters of protocol=a new one are not replayed")
    assert [*rows_alone("a new one")(b"x", [FailedRow(3, 5, None)])] == [b"x"]
