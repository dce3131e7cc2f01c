"""The events about the files of a binlog: what is in one, where it goes on, how far it is written.

Each function takes one event (`events.event_at`) and raises BadEvent where its body is not what its
type says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.events import CHECKSUM_BYTES, HEADER_BYTES, Event
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.type_codes import EventType

_CRC32: Final = 1


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log goes on in ``file``, from ``offset``."""

    file: str
    offset: int


def rotate(event: Event) -> Rotate:
    body = ByteReader(event.body)
    offset = body.number(8)
    return Rotate(body.text(body.left), offset)


def heartbeat(event: Event) -> Rotate:
    """Where an idle log stands."""
    body = ByteReader(event.body)
    if event.kind == EventType.HEARTBEAT:
        return Rotate(body.text(body.left), event.end_offset)
    file, offset = "", event.end_offset
    while body.left:
        tag = body.number(1)
        if tag == 0:
            break
        value = body.sized(body.length_encoded())
        if tag == 1:
            file = value.text(value.left)
        elif tag == 2:
            offset = value.length_encoded()
    return Rotate(file, offset)


@dataclass(frozen=True, slots=True)
class FormatDescription:
    server_version: str  # "10.11.19-MariaDB-…", "8.4.3"
    checksum: bool  # the events of this file end in a CRC32

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.server_version.lower()


def format_description(event: Event) -> FormatDescription:
    """``event``: read with ``checksum=False``, since this event says whether there are any. Raises
    Refused for a format that no server has written since MySQL 5.0."""
    body = ByteReader(event.body)
    version, server = body.number(2), body.take(50)
    body.take(4)  # when it was made
    header = body.number(1)
    if version != 4 or header != HEADER_BYTES:
        raise Refused(
            f"the binlog has format {version} with headers of {header} bytes: format 4 is read, "
            "which servers write from MySQL 5.0 on"
        )
    if body.left < 1 + CHECKSUM_BYTES:
        raise BadEvent("the FORMAT_DESCRIPTION says nothing about checksums")
    algorithm = event.body[-1 - CHECKSUM_BYTES]
    if algorithm not in (0, _CRC32):
        raise Refused(
            f"the binlog's checksums are of kind {algorithm}: set binlog_checksum = CRC32 or NONE"
        )
    return FormatDescription(server.rstrip(b"\0").decode("latin-1"), algorithm == _CRC32)
