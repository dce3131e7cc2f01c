"""Messages are the same after they were bytes, and small."""

from __future__ import annotations

import json

import pytest

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, TableName, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Body,
    Checkpoint,
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    MalformedMessage,
    Message,
    RemoveTable,
    Span,
    decode,
    encode,
    stored_table_id,
)
from coordination.scheduler.table_status import NO_NOTE, Statuses, TableState, TableStatus

TSO = 468_000_000_000_000_000
SPAN = Span(2**63 - 1, "shop", "größe.0")
FULL = TableStatus(
    2**63 - 2,
    TableState.REPLICATING,
    Ts(TSO + 10),
    Ts(TSO + 12),
    Ts(TSO + 7),
    (7 << 32) | 3,
    41,
    2,
    "merge-on-write",
    {"shop/0": 17, "shop/1": 0},
    {"note": 2},
    True,
    {"day": 3},
    True,
    "table shop.orders: …",
)
BARE = TableStatus(5, TableState.ABSENT)
BODIES: list[Body] = [
    AddTable(span=SPAN, is_secondary=True, checkpoint=Checkpoint(Ts(TSO), Ts(TSO)), fence=1 << 32),
    RemoveTable(table_id=SPAN.table_id, fence=9),
    DispatchTableResponse(status=FULL, sequence=4),
    DispatchTableResponse(status=BARE, sequence=4),
    Heartbeat(),
    Heartbeat(
        seen=3,
        table_ids=(1, SPAN.table_id),
        is_stopping=True,
        barrier=Barrier(Ts(TSO), {1: Ts(TSO - 5)}),
    ),
    Heartbeat(barrier=Barrier(Ts(0))),
    HeartbeatResponse(
        statuses=Statuses.of(()),
        liveness=Liveness.ALIVE,
        sequence=1,
        since=0,
        checksum=0,
        read_positions={},
    ),
    HeartbeatResponse(
        statuses=Statuses.of(
            [
                FULL,
                BARE,
                FULL._replace(table_id=2**63 - 1, checkpoint_ts=Ts(0)),
                BARE._replace(table_id=0, fence=3),
                BARE._replace(table_id=6, engine="merge-on-write"),
                BARE._replace(table_id=7, engine="merge-on-write"),
            ]
        ),
        liveness=Liveness.STOPPING,
        sequence=12,
        since=11,
        checksum=2**64 - 1,
        read_positions={"shop/0": 3},
    ),
]


def message(body: Body) -> Message:
    return Message(
        version="8.5.0",
        launch=77,
        processor_epoch=ProcessorEpoch("6c0e6f3e"),
        changefeed_epoch=2**60,
        sender=CaptureID("a"),
        to=CaptureID("b"),
        changefeed_id=ChangefeedID("shop"),
        body=body,
    )


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_message_is_the_same_after_it_was_bytes(body: Body):
    assert decode(encode(message(body))) == message(body)


def test_a_state_is_itself_again_and_not_its_number():
    made = decode(encode(message(BODIES[-1])))
    assert made.body.statuses[-1].state is TableState.REPLICATING  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b"null", encode(message(BODIES[0])).replace(b'"fence"', b'"f"'),
     encode(message(BODIES[0])).replace(b'"msg_type":1', b'"msg_type":9'),
     encode(message(BODIES[2]))[:-9]],
)  # fmt: skip
def test_what_is_no_message_is_said_to_be_none(data: bytes):
    with pytest.raises(MalformedMessage):
        decode(data)


@pytest.mark.parametrize("more", [1, "mood"])
def test_a_tuple_of_another_length_is_no_message(more: object):
    for part in ("checkpoint", "add"):
        document = json.loads(encode(message(BODIES[0])))
        document["body"][part].append(more)
        with pytest.raises(MalformedMessage):
            decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("state", 9),  # no state of a span
        ("checkpoint_ts", [0, 8, ""]),  # too few of them
        ("table_id", [0, 1, "AQAAAAAA"]),  # not in order
        ("fence", [0, 1, "?"]),
        ("fence", [0, 1, "AQAAAAAA", 3]),
        ("note", 5),
        ("notes", [[*NO_NOTE, "mood"]]),
    ],
)
def test_columns_that_do_not_fit_are_no_message(column: str, told: object):
    document = json.loads(encode(message(BODIES[8])))
    document["body"]["statuses"][column] = told
    with pytest.raises(MalformedMessage):
        decode(json.dumps(document).encode())


def test_a_span_that_moved_on_costs_few_bytes():
    statuses = Statuses.of(
        TableStatus(n**6, TableState.REPLICATING, Ts(TSO + n), Ts(TSO), Ts(TSO), (1 << 32) + n, 17)
        for n in range(1_000)
    )
    response = HeartbeatResponse(
        statuses=statuses, liveness=Liveness.ALIVE, sequence=2, since=1, checksum=0
    )
    assert len(encode(message(response))) / 1_000 < 20


def test_a_table_id_tells_tables_and_their_lives_apart():
    first = stored_table_id(1, "shop", "orders", TSO)
    assert first == stored_table_id(1, "shop", "orders", TSO)
    assert first == 2_450_800_253_667_602_840, "stored in tables: it may never change"
    others = {
        stored_table_id(2, "shop", "orders", TSO),
        stored_table_id(1, "shop", "orders", TSO + 1),
        stored_table_id(1, "shoporders", "", TSO),
        stored_table_id(1, "", "shoporders", TSO),
    }
    assert len(others | {first}) == 5
    assert all(0 <= table_id < 2**63 for table_id in others)


def test_a_span_is_a_whole_table():
    assert SPAN.name == TableName("shop", "größe.0")
