"""Each row of TiCDC's recorded messages by itself, as its dead letter has it, is the same row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from streaming.apply.letters.letter_rows import letter_rows
from streaming.apply.letters.row_bytes import FailedRow, letter_decoder, rows_alone
from streaming.changefeed.routes import routes_of
from streaming.protocols.contract import (
    LETTER_HEAD,
    NO_TABLE,
    UNTIMED,
    Block,
    Kind,
    Messages,
    WantedTable,
)
from streaming.protocols.contract import with_key as keyed
from streaming.protocols.decoders import decoder_of
from tests.services import wire

Found = dict[tuple[int, int], dict[str, Any]]  # by position and index


def chunks(variant: str, *, with_keys: bool, is_numbered: bool) -> Iterator[Messages]:
    for part, sent in wire.partitions(variant).items():
        values = [keyed(each.key, each.value) if with_keys else each.value for each in sent]
        positions = pa.array(range(len(sent)), pa.int64())
        numbers = pa.array(range(1000, 1000 + len(sent)), pa.int64()) if is_numbered else None
        yield Messages(
            part=f"wire/{part}",
            positions=positions,
            values=pa.array(values, pa.binary()),
            commit_ts=numbers,
        )


def rows_of(blocks: list[Block]) -> dict[TableName, Found]:
    found: dict[TableName, Found] = defaultdict(dict)
    for block in blocks:
        is_timed = block.token != UNTIMED  # those get their commit-ts from whoever reads
        if block.kind is Kind.ROW and block.body is not None and is_timed:
            table = block.table()
            head = table.schema.metadata.get(LETTER_HEAD)
            for row in table.to_pylist():
                found[block.name][row["position"], row["index"]] = {
                    "old": None,
                    **row,
                    "head": head,
                }
    return found


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["op"], row["commit_ts"], row["data"], row["old"], row.get("error_class")


@pytest.mark.parametrize(
    ("variant", "protocol", "is_numbered"),
    [
        ("canal-json", "canal-json", False),
        ("canal-json-claim-check", "canal-json", False),
        ("canal-json-noext", "canal-json", True),
        ("open-protocol", "open-protocol", False),
        ("open-protocol-claim-check", "open-protocol", False),
        ("open-protocol-updated-columns", "open-protocol", False),
        ("simple-json", "simple", False),
        ("simple-avro", "simple", False),
        ("simple-avro-lz4", "simple", False),
        ("debezium", "debezium", False),
        ("maxwell", "maxwell", True),
        ("avro", "avro", True),
        ("avro-string-modes", "avro", False),
        ("avro-watermark", "avro", False),
    ],
)
def test_each_row_of_a_recording_is_the_same_from_its_letter(
    variant: str, protocol: str, is_numbered: bool
) -> None:
    decode, alone = decoder_of(protocol), rows_alone(protocol)
    if decode.needs_schemas:
        decode = replace(decode, schemas=wire.schemas(variant))
    seen = 0
    for messages in chunks(variant, with_keys=decode.reads_keys, is_numbered=is_numbered):
        names = {block.name for block in decode(messages, {})} - {NO_TABLE}
        wanted = {name: WantedTable(above_ts=Ts(0), key=None) for name in names}
        for name, rows in rows_of(list(decode(messages, wanted))).items():
            by_message = defaultdict(list)
            for position, index in sorted(rows):
                row = rows[position, index]
                failed = FailedRow(index, row["commit_ts"], row["head"])
                by_message[position].append(failed)
            values: list[bytes] = []
            for position, failed_rows in by_message.items():
                values += alone(messages.values[position].as_py(), failed_rows)
            letters = pa.chunked_array([pa.array(values, pa.binary())])
            numbers = pa.chunked_array([[row["commit_ts"] for _, row in sorted(rows.items())]])
            found = letter_rows(
                letters,
                name,
                letter_decoder(protocol),
                routes_of((), FilterSettings()),
                numbers if is_numbered else None,
            )
            assert found.others == {}
            again = {
                row["position"]: {"old": None, **row}
                for block in found.blocks
                for batch in block.batches()
                for row in batch.to_pylist()
            }
            expected = [said(row) for _, row in sorted(rows.items())]
            assert [said(again[n]) for n in range(len(again))] == expected
            seen += len(expected)
    assert seen > 50
