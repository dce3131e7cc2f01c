"""Where events begin in the bytes that came from the socket.

A packet is three bytes of length, one of sequence, then a status byte (0) and the event. The bytes
are not copied together: the decoder takes events wherever they stand.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.events import HEADER_BYTES
from streaming.source.binlog.format.faults import BadEvent

LONG_PACKET: Final = 0xFFFFFF  # of this length: the payload goes on in the next packet
_HEAD: Final = 4  # bytes before a packet's payload


class Stop(Enum):
    """What stands where the walk ended, if it is not the end of the bytes."""

    END_OF_LOG = "end-of-log"  # the server has sent all (it was asked not to wait)
    ERROR = "error"  # `server_error` reads it
    LONG_EVENT = "long-event"  # an event of 16 MiB or more: `long_event` reads it


@dataclass(frozen=True, slots=True, eq=False)
class Packets:
    """``at``: where each event begins. ``end``: where the last whole packet of them ends; there
    stands what ``stop`` says, or a packet that is not whole yet (None)."""

    at: npt.NDArray[np.int64]
    end: int
    stop: Stop | None


def packet_starts(data: bytes | bytearray | memoryview, begin: int, end: int) -> Packets:
    """Walks the packets in ``data[begin:end]``. Raises BadEvent where there is no packet."""
    starts: list[int] = []
    append, word = starts.append, struct.Struct("<I").unpack_from
    at = begin
    stop = None
    while at + 5 <= end:
        length = word(data, at)[0] & LONG_PACKET
        after = at + _HEAD + length
        status = data[at + _HEAD]
        if status or length == LONG_PACKET:
            if length != LONG_PACKET and after > end:
                break
            stop = _stop_of(status)
            break
        if after > end:
            break
        if length <= HEADER_BYTES:
            raise BadEvent(f"a packet of {length} bytes holds no event")
        append(at + _HEAD + 1)
        at = after
    return Packets(np.array(starts, np.int64), at, stop)


def _stop_of(status: int) -> Stop:
    match status:
        case 0:
            return Stop.LONG_EVENT
        case 0xFE:
            return Stop.END_OF_LOG
        case 0xFF:
            return Stop.ERROR
    raise BadEvent(f"a packet of a binlog begins with byte {status}: 0, 254 and 255 are known")


def server_error(data: bytes | bytearray | memoryview, at: int) -> tuple[int, str]:
    """The error number and the text of the ERR packet that begins at ``at``, whole."""
    length = int.from_bytes(data[at : at + 3], "little")
    body = bytes(data[at + _HEAD + 1 : at + _HEAD + length])
    text = body[2:]
    if text[:1] == b"#":  # and five characters of SQLSTATE
        text = text[6:]
    return int.from_bytes(body[:2], "little"), text.decode("utf-8", "replace")


def long_event(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[bytes, int] | None:
    """The event of several packets that begins at ``at``, without the framing in it, and where its
    last packet ends; None if it is not whole yet."""
    parts: list[bytes | bytearray | memoryview] = []
    skipped = 1  # the status byte
    while at + _HEAD <= end:
        length = int.from_bytes(data[at : at + 3], "little")
        after = at + _HEAD + length
        if after > end:
            return None
        parts.append(data[at + _HEAD + skipped : after])
        skipped = 0
        at = after
        if length != LONG_PACKET:
            return b"".join(parts), at
    return None
