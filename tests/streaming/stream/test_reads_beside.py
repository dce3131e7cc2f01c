"""What a joining table still needs takes several reads, and its parts end in different ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streaming.protocols.contract import Block, Kind
from streaming.source.contract import ReadOrder, SourceShape
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream.reading import Place, Reading
from streaming.stream.shared_stream import SharedStream

PARTS = ("a", "b", "c")


class OnePartARead:
    """A reader that reads no more than two messages of the first part that has any."""

    def read(self, order: ReadOrder) -> list[Block]:
        part, first = min(order.there.items())
        last = min(first + 2, order.ends[part])
        return [Block(kind=Kind.DONE, part=part, first=first, last=last)]


def test_a_part_that_was_read_to_its_end_is_not_asked_for_again() -> None:
    shape = SourceShape(dict.fromkeys(PARTS, "id"))
    context: Any = SimpleNamespace(
        reader=lambda *_: OnePartARead(),
        batch=SimpleNamespace(max_messages=2),
        trust=SimpleNamespace(check=lambda: None),
    )
    source: Any = SimpleNamespace(distance=lambda *_: 2)
    begin = Place(
        shape=shape, position=dict.fromkeys(PARTS, 0), limits=Watermarks(parts=shape.parts)
    )
    reading = Reading(context, source, begin)
    jobs: Any = None
    stream = object.__new__(SharedStream)
    stream.context = context
    stream._run = SimpleNamespace(  # type: ignore[assignment]
        read_beside=lambda begin, ends, wanted: reading.beside(jobs, begin, ends, wanted)
    )
    low_water = dict.fromkeys(PARTS, 0)
    reads = list(stream.read_between(low_water, {"a": 3, "b": 0, "c": 2}, {}))
    ends = [(part, each.begin[part], at) for each in reads for part, at in each.end.items()]
    assert ends == [("a", 0, 2), ("a", 2, 3), ("c", 0, 2)]
    assert [each.rows_wait for each in reads] == [True, True, False]
