"""Other orders of the same messages, as TiCDC may send them."""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tests.services.other_recordings.open_protocol import VERSION, framed, frames
from tests.services.wire import WireMessage

Messages = Iterable[WireMessage]
_NAMED = re.compile(rb'"(?:table|tbl)":"((?:[^"\\]|\\.)*)"')
_TSO = re.compile(rb"(?<![\w.-])4706207\d{11}(?!\w)")


def kind(message: WireMessage) -> str:
    """ddl, watermark, bootstrap, or that of a row."""
    word = message.note.split()[1]
    return word if word in ("ddl", "watermark", "bootstrap") else "row"


def numbered(messages: Messages) -> Iterator[WireMessage]:
    """With offsets as a broker gives them."""
    ends: Counter[tuple[str, int]] = Counter()
    for each in messages:
        yield replace(each, offset=ends[each.topic, each.partition])
        ends[each.topic, each.partition] += 1


def twice(messages: Messages) -> Iterator[WireMessage]:
    """Each message comes again right behind it: a producer's retry."""
    for each in messages:
        yield each
        yield each


def few_watermarks(messages: Sequence[WireMessage], dice: random.Random) -> Iterator[WireMessage]:
    """Without most of them, of each partition others; the last ones stay."""
    last = len(messages) - 40
    for at, each in enumerate(messages):
        if kind(each) != "watermark" or at > last or dice.random() < 0.2:
            yield each


def sent_again(
    messages: Sequence[WireMessage], dice: random.Random, times: int = 4
) -> list[WireMessage]:
    """TiCDC starts again some times, from a watermark that it had sent to all partitions."""
    made = list(messages)
    marks = [at for at, each in enumerate(made) if kind(each) == "watermark"]
    for begin in sorted(dice.sample(marks[:-6], times), reverse=True):
        end = min(len(made), begin + dice.randrange(5, 120))
        first = begin
        while first and kind(made[first - 1]) == "watermark":
            first -= 1  # of that watermark, for each partition
        made[end:end] = made[first:end]
    return made


def with_partitions(messages: Messages, count: int, partitions: int = 3) -> Iterator[WireMessage]:
    """1, or a multiple of what it had: rows of one key stay together."""
    for each in messages:
        if kind(each) != "row":
            if count == 1:
                if each.partition == 0:
                    yield each
            elif _is_broadcast(each):
                for more in range(count // partitions):
                    yield replace(each, partition=each.partition + more * partitions)
            else:
                yield each
        elif count == 1:
            yield replace(each, partition=0)
        else:
            spread = zlib.crc32(_table(each).encode()) % (count // partitions)
            yield replace(each, partition=each.partition + spread * partitions)


def _is_broadcast(message: WireMessage) -> bool:
    return kind(message) != "ddl" or b'"isDdl"' not in (message.value or b"")


def _table(message: WireMessage) -> str:
    found = _NAMED.search((message.key or b"") + (message.value or b""))
    return "" if found is None else found[1].decode()


def topic_each(messages: Messages, partitions: int = 3) -> Iterator[WireMessage]:
    """A topic for each table, as TiCDC's dispatchers can have it. One whose table is gone gets no
    more watermarks, and a RENAME goes where its table was. Of open-protocol: `in_batches` of 1."""
    there: set[str] = set()
    for each in messages:
        if kind(each) == "watermark":
            for topic in ("wire", *sorted(there)):
                yield replace(each, topic=topic)
            continue
        table, gone = _table(each), ""
        if kind(each) == "ddl":
            text = (each.value or b"").decode(errors="replace")
            if found := re.search(r"RENAME TABLE `shop`\.`(\w+)` TO", text):
                table = gone = found[1]
            elif re.search("DROP TABLE `shop`", text):
                gone = table
        if not table:
            yield replace(each, topic="wire")
            continue
        yield replace(each, topic=f"shop_{table}")
        if gone and each.partition in (partitions - 1, _ddl_partition(each)):
            there.discard(f"shop_{gone}")
        elif not gone:
            there.add(f"shop_{table}")


def _ddl_partition(message: WireMessage) -> int:
    """Where the last message of a DDL is."""
    return 2 if _is_broadcast(message) else 0


def in_batches(messages: Messages, size: int) -> Iterator[WireMessage]:
    """Of open-protocol: batches of at most so many events."""
    for each in messages:
        if kind(each) != "row":
            yield each
            continue
        assert each.key is not None
        assert each.value is not None
        keys, values = frames(each.key[8:]), frames(each.value)
        for at in range(0, len(keys), size):
            key = VERSION + framed(keys[at : at + size])
            yield replace(each, key=key, value=framed(values[at : at + size]))


def at_another_time(messages: Messages, move: int) -> Iterator[WireMessage]:
    """With other TSOs; they must have as many digits."""
    for each in messages:
        yield replace(each, key=_moved(each.key, move), value=_moved(each.value, move))


def _moved(data: bytes | None, move: int) -> bytes | None:
    if data is None:
        return None
    return _TSO.sub(lambda found: b"%d" % (int(found[0]) + move), data)
