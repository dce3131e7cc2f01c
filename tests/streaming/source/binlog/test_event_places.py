"""The quick look at where events end."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from streaming.source.binlog.format.type_codes import EventType
from streaming.source.binlog.position import BinlogPosition
from streaming.source.binlog.walk.event_places import seen_to
from tests.streaming.source.binlog.binlogs import made_event


@pytest.mark.parametrize("checksum", [True, False])
def test_a_checksum_is_no_part_of_a_files_name(checksum: bool) -> None:
    """One in 26 begins with a byte that is a digit: the log was waited for in another file."""
    found = set()
    for offset in range(4, 400):
        body = struct.pack("<Q", offset) + b"binlog.000007"
        data = np.frombuffer(made_event(EventType.ROTATE, body, checksum=checksum), np.uint8)
        seen = seen_to(data, np.array([0]), BinlogPosition(6, 99), 1_000)
        found.add(seen.number)
    assert found == {1_007}
