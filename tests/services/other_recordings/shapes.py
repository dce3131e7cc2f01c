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
_TSO = re.compile(rb"(?<![\w.-])4706207\d{11}(?!\w)")


def kind(message: WireMessage) -> str:
    """ddl, watermark, bootstrap, or that of a row."""
    word = message.note.split()[1]
    return word if word in ("ddl", "watermark", "bootstrap") else "row"


def numbered(messages: Messages) -> Iterator[WireMessage]:
    """With offsets as a broker gives them."""
    ends: Counter[int] = Counter()
    for each in messages:
        yield replace(each, offset=ends[each.partition])
        ends[each.partition] += 1


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
            spread = zlib.crc32(_table(each)) % (count // partitions)
            yield replace(each, partition=each.partition + spread * partitions)


def _is_broadcast(message: WireMessage) -> bool:
    return kind(message) != "ddl" or b'"isDdl"' not in (message.value or b"")


def _table(message: WireMessage) -> bytes:
    found = re.search(
        rb'"(?:table|tbl)":"((?:[^"\\]|\\.)*)"', (message.key or b"") + (message.value or b"")
    )
    return b"" if found is None else found[1]


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
