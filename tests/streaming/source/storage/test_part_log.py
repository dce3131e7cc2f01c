"""The least commit-ts of what is not read yet holds the watermark: a file that is read through
holds nothing."""

from __future__ import annotations

from coordination.model import SEALED_TS
from streaming.source.storage.layout import Packing, Place
from streaming.source.storage.part_log import Known, PartLog

PACKING = Packing(separator="none")
FIRST, SECOND = Place(0, 1), Place(0, 2)


def test_the_least_ts_is_that_of_what_lies_behind_the_position() -> None:
    log = PartLog(PACKING)
    for place, ts in ((FIRST, 100), (SECOND, 200)):
        log.put(place, Known(path=f"{place.index}", size=10, modified_ms=0))
        log.note_ts(place, 10, ts)
    found = {
        (place.index, offset): log.least_ts(PACKING.position(place, offset))
        for place in (FIRST, SECOND)
        for offset in (0, 9, 10)
    }
    assert found == {
        (1, 0): 100,
        (1, 9): 100,
        (1, 10): 200,
        (2, 0): 200,
        (2, 9): 200,
        (2, 10): SEALED_TS,
    }
    assert log.unnoted(log.end) == []


def test_a_file_that_has_grown_is_not_known_any_more() -> None:
    log = PartLog(PACKING)
    log.put(FIRST, Known(path="1", size=10, modified_ms=0))
    log.note_ts(FIRST, 10, 100)
    log.put(FIRST, Known(path="1", size=20, modified_ms=1))
    assert log.least_ts(PACKING.position(FIRST, 10)) == 0
    assert log.unnoted(PACKING.position(FIRST, 10)) == [FIRST]
