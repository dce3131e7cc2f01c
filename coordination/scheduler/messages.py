"""The messages between the owner of a changefeed and the agents, and their encoding as bytes.

    owner ── Heartbeat, AddTable, RemoveTable ──► agent
    owner ◄── HeartbeatResponse, DispatchTableResponse ── agent

The messages are TiCDC's. Added are a fence in dispatches (docs/cluster.md 2), sequence numbers, so
that a heartbeat carries only changes (docs/cluster.md 17), and how far a capture has read. A span
is a whole table; on the wire its table ID stands for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from coordination.errors import TidelakeError
from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, TableName, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.table_status import Statuses, TableStatus, dump, load


class Liveness(IntEnum):
    """Goes from ALIVE to STOPPING, and back only if a drain is taken back."""

    ALIVE = 0
    STOPPING = 1


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A whole table; ``table_id`` is a `stored_table_id`, since canal-json carries no table ID."""

    table_id: int
    schema: str
    table: str

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.table)


def stored_table_id(incarnation: int, schema: str, table: str, created_ts: int) -> int:
    """A table ID of 63 bits, computed alike by every capture. A table that was dropped and created
    again has another ID."""
    identity = json.dumps([incarnation, schema, table, created_ts], ensure_ascii=True)
    digest = hashlib.blake2b(identity.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Checkpoint(NamedTuple):
    checkpoint_ts: Ts
    resolved_ts: Ts


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTable:
    """An order to prepare a span (``is_secondary``), or to write it from the checkpoint on."""

    span: Span
    is_secondary: bool
    checkpoint: Checkpoint
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTable:
    """An order to stop the span, if it was assigned under ``fence`` or an older one."""

    table_id: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTableResponse:
    """The new state of a span, sent at once; ``sequence`` orders it among the agent's heartbeat
    responses."""

    status: TableStatus
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    seen: int = 0  # sequence of the last response that the owner has applied; 0 asks for all spans
    table_ids: tuple[int, ...] = ()  # spans to report even if unchanged, or Absent
    is_stopping: bool = False
    barrier: Barrier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """All spans (``since`` = 0), or those that changed after response ``since``."""

    statuses: Statuses
    liveness: Liveness
    sequence: int
    since: int
    checksum: int  # of all spans of the agent: see `table_status.checksum`
    read_positions: Mapping[str, int] | None = None  # the low water of spans that hold no rows back


DispatchTableRequest = AddTable | RemoveTable
Body = DispatchTableRequest | DispatchTableResponse | Heartbeat | HeartbeatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The first four fields travel as its ``header``."""

    version: str
    launch: int
    processor_epoch: ProcessorEpoch
    changefeed_epoch: int
    sender: CaptureID
    to: CaptureID
    changefeed_id: ChangefeedID
    body: Body


class MalformedMessage(TidelakeError):
    """The bytes cannot be decoded as a message; the receiver drops them."""


_HEADER: Final = {  # TiCDC's keys, and our fields
    "version": "version",
    "owner_revision": "launch",
    "processor_epoch": "processor_epoch",
    "changefeed_epoch": "changefeed_epoch",
}
_DISPATCH_REQUEST, _DISPATCH_RESPONSE, _HEARTBEAT, _HEARTBEAT_RESPONSE = 1, 2, 3, 4


def encode(message: Message) -> bytes:
    """The message as compact JSON."""
    kind, body = _dump_body(message.body)
    document = {
        "header": {key: getattr(message, name) for key, name in _HEADER.items()},
        "msg_type": kind,
        "from": message.sender,
        "to": message.to,
        "changefeed_id": message.changefeed_id,
        "body": body,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> Message:
    """The message in the bytes. Raises MalformedMessage."""
    try:
        document = json.loads(data)
        return Message(
            **{name: document["header"][key] for key, name in _HEADER.items()},
            sender=document["from"],
            to=document["to"],
            changefeed_id=document["changefeed_id"],
            body=_load_body(document["msg_type"], document["body"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MalformedMessage(f"not a scheduler message: {error!r}") from error


def _dump_body(body: Body) -> tuple[int, dict[str, Any]]:
    match body:
        case AddTable(span=span):
            return _DISPATCH_REQUEST, {
                "add": (span.table_id, span.schema, span.table),
                "is_secondary": body.is_secondary,
                "checkpoint": body.checkpoint,
                "fence": body.fence,
            }
        case RemoveTable():
            return _DISPATCH_REQUEST, {"remove": body.table_id, "fence": body.fence}
        case DispatchTableResponse():
            return _DISPATCH_RESPONSE, {
                "status": dump(Statuses.of([body.status])),
                "sequence": body.sequence,
            }
        case Heartbeat(table_ids=table_ids, barrier=barrier):
            dumped: dict[str, Any] = {"seen": body.seen, "is_stopping": body.is_stopping}
            if table_ids:
                dumped["table_ids"] = table_ids
            if barrier is not None:
                tables = [*barrier.table_barriers.items()]
                dumped["barrier"] = {"global": barrier.global_barrier_ts, "tables": tables}
            return _HEARTBEAT, dumped
        case HeartbeatResponse():
            return _HEARTBEAT_RESPONSE, _dump_heartbeat_response(body)


def _load_body(kind: int, body: dict[str, Any]) -> Body:
    match kind:
        case 1 if "add" in body:
            return AddTable(
                span=Span(*body["add"]),
                is_secondary=body["is_secondary"],
                checkpoint=Checkpoint(*body["checkpoint"]),
                fence=body["fence"],
            )
        case 1:
            return RemoveTable(table_id=body["remove"], fence=body["fence"])
        case 2:
            (status,) = load(body["status"])
            return DispatchTableResponse(status=status, sequence=body["sequence"])
        case 3:
            barrier = body.get("barrier")
            return Heartbeat(
                seen=body["seen"],
                table_ids=tuple(body.get("table_ids", ())),
                is_stopping=body["is_stopping"],
                barrier=barrier and Barrier(barrier["global"], dict(barrier["tables"])),
            )
        case 4:
            return _load_heartbeat_response(body)
        case _:
            raise ValueError(f"unknown msg_type {kind}")


def _dump_heartbeat_response(body: HeartbeatResponse) -> dict[str, Any]:
    dumped: dict[str, Any] = {
        "liveness": body.liveness,
        "sequence": body.sequence,
        "since": body.since,
        "checksum": body.checksum,
        "statuses": dump(body.statuses),
    }
    if body.read_positions is not None:
        dumped["read_positions"] = body.read_positions
    return dumped


def _load_heartbeat_response(body: dict[str, Any]) -> HeartbeatResponse:
    return HeartbeatResponse(
        statuses=load(body["statuses"]),
        liveness=Liveness(body["liveness"]),
        sequence=body["sequence"],
        since=body["since"],
        checksum=body["checksum"],
        read_positions=body.get("read_positions"),
    )
