"""The recorded truth in Python values."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

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
