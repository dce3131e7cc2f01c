"""The recorded truth in Python values."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.services import wire
from tests.services.kafka_broker import KafkaBroker


def test_every_type_has_the_value_that_delta_gives():
    table = wire.expected("after_load")["alltypes"]
    lowest, highest = table.rows[0], table.rows[1]
    assert "c_gen_v" not in table.columns  # virtual: never sent
    assert lowest["c_gen_s"] == 14
    assert highest["c_bit64"] == Decimal(2**64 - 1)
    assert highest["c_ubigint"] == Decimal(2**64 - 1)
    assert highest["c_dec"].startswith("9999")  # decimal(65,30) does not fit
    assert highest["c_dec2"] == Decimal("99999999.99")
    assert highest["c_enum"] == "中文"
    assert lowest["c_set"] == ""
    assert lowest["c_binary"] == bytes(16)
    assert lowest["c_vec"] == [0.0, 0.0, 0.0]
    assert lowest["c_nn_ts"] == datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert highest["c_datetime6"] == datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001


def test_zero_dates_are_null_and_year_zero_is_zero():
    rows = wire.expected("after_load")["alltypes"].rows
    zero = next(row for row in rows if row["c_year"] == 0)
    assert [zero[c] for c in ("c_date", "c_datetime", "c_timestamp", "c_timestamp6")] == [None] * 4


def test_floats_are_rounded_as_float32():
    floats = {row["c_float"] for row in wire.expected("after_load")["alltypes"].rows}
    assert 1.100000023841858 in floats


def test_a_difference_names_row_and_cell():
    table = wire.expected("after_updates")["stock"]
    rows = [dict(row) for row in table.rows]
    assert table.difference(rows[::-1]) is None
    rows[3]["qty"] += 1
    difference = table.difference(rows)
    assert difference is not None
    assert f"seq={rows[3]['seq']!r}" in difference
    assert f"qty is {rows[3]['qty']}" in difference
    assert "is missing" in (table.difference(rows[1:]) or "")
    assert "twice" in (table.difference([*table.rows, table.rows[0]]) or "")


def test_a_table_without_a_key_is_a_bag():
    table = wire.expected("after_updates")["audit_log"]
    assert table.key is None
    assert table.difference([dict(row) for row in reversed(table.rows)]) is None
    assert "should not be there" in (table.difference([*table.rows, table.rows[0]]) or "")


@pytest.mark.kafka
def test_recorded_messages_keep_partition_and_offset(broker: KafkaBroker):
    topic = wire.produce(broker, wire.CANAL_JSON, topic="recorded")
    read = broker.read(topic)
    recorded = wire.messages(wire.CANAL_JSON)
    assert Counter(message[:4] for message in read) == Counter(
        (message.partition, message.offset, message.key, message.value) for message in recorded
    )


@pytest.mark.parametrize("variant", [wire.CANAL_JSON, wire.CANAL_JSON_INTERLEAVED])
@pytest.mark.parametrize("label", ["after_load", "after_updates"])
def test_the_truth_follows_from_the_bytes(variant: str, label: str):
    """Last change per key by (commit-ts, delete first), in plain Python."""
    found = last_rows(variant, wire.state_ts(label))
    for table in wire.expected(label).values():
        if table.key is None:
            continue
        rows = [row for key, row in found.items() if key[0] == table.name and row is not None]
        assert table.difference([read(table, row) for row in rows]) is None


def last_rows(variant: str, up_to: int) -> dict[tuple[str, ...], dict[str, Any] | None]:
    """(table, key…) -> the row's text, None where it was deleted."""
    decoded = (json.loads(message.value or b"") for message in wire.messages(variant))
    rows = [m for m in decoded if m["data"] and m["_tidb"]["commitTs"] <= up_to]
    rows.sort(key=lambda m: (m["_tidb"]["commitTs"], m["type"] != "DELETE"))
    found: dict[tuple[str, ...], dict[str, Any] | None] = {}
    for message in rows:
        row = message["data"][0]
        key = message["pkNames"] or [c for c in ("code", "sub") if c in row]
        at = (message["table"], *(row[column] for column in key))
        found[at] = None if message["type"] == "DELETE" else row
    return found


def read(table: wire.ExpectedTable, row: dict[str, Any]) -> dict[str, Any]:
    return {
        column: None if row[column] is None else table.readers[column](written(row, column))
        for column in table.columns
    }


def written(row: dict[str, Any], column: str) -> Any:
    """A cell as the recorded truth writes it: bytes in hex, an enum by its name."""
    names = {"c_enum": enum_name, "c_set": set_names}.get(column)
    if names is not None:
        return {"name": names(int(row[column]))}
    if "binary" in column or "blob" in column:
        return {"hex": row[column].encode("latin-1").hex()}
    return row[column]


def enum_name(index: int) -> str:
    return ("", "a", "b,c", "d'e", "中文", "")[index]


def set_names(bits: int) -> str:
    return ",".join(name for bit, name in enumerate(("x", "y", "z", "w v")) if bits >> bit & 1)
