"""Which transactions lie before a binlog file, as its head says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.events import Event
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import EventType
from streaming.source.resolved.gtid_sets import GtidSet, Last, Run, joined_runs


def before_file(event: Event) -> GtidSet:
    """What a file's head says of the transactions before it. Raises BadEvent."""
    body = ByteReader(event.body)
    if event.kind == EventType.GTID_LIST:
        count = body.number(4) & ((1 << 28) - 1)
        found = [(body.number(4), body.number(4), body.number(8)) for _ in range(count)]
        # A domain may have several, of several servers; its last one stands last.
        last = {domain: Last(domain, server, number) for domain, server, number in found}
        return GtidSet(last=tuple(sorted(last.values())))
    return GtidSet(tuple(sorted(_previous(body))))


def _previous(body: ByteReader) -> Iterator[tuple[str, tuple[Run, ...]]]:
    head = body.number(8)
    is_tagged = head >> 56 == 1
    for _ in range((head >> 8) & ((1 << 48) - 1) if is_tagged else head):
        source = str(UUID(bytes=body.take(16)))
        if is_tagged and (size := body.number(1) >> 1):
            source += ":" + body.text(size)
        count = body.number(8)
        if count * 16 > body.left:
            raise BadEvent("a list of GTIDs is longer than its event")
        yield source, joined_runs((body.number(8), body.number(8) - 1) for _ in range(count))
