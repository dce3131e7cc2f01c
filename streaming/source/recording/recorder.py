"""`tidelake record`: the messages of topics into a file, which `tidelake run` plays again.

Messages go into the file as they come, a line for each. All that lies between two places of each
partition is recorded; the end is fixed when the recording begins.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import ConfigError
from streaming.protocols.decoders import disguise_of
from streaming.source.contract import SourceLost
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.message_bytes import Sent, all_messages
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.source.positions import Positions

_TOLD_AFTER: Final = 1_000  # messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The messages to record: by positions (part -> the first one, and the one behind the last), or
    by the times of messages (ms since 1970). A position wins over a time."""

    begin: Positions
    end: Positions
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How far a recording is. ``total``: about, since not every offset has a message."""

    messages: int
    total: int


def record(
    source: KafkaSettings,
    output: Path,
    section: Section,
    *,
    seed: int | None = None,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Recorded:
    """Write the file, which appears when it is whole. ``seed``: disguises values; None: they stay
    as they are. ``told`` often gets the number of recorded messages, and about how many there are.
    Raises ConfigError, SourceAway, SourceLost."""
    change = None if seed is None else disguise_of(source.protocol, seed)
    with closing(Broker(source)) as broker:
        ranges = _ranges(broker, section)
    done = Recorded(messages=0, total=sum(each.messages for each in ranges))
    with _file(output) as file:
        for message in all_messages(source, ranges):
            file.write(_line(message, change))
            done = Recorded(messages=done.messages + 1, total=done.total)
            if done.messages % _TOLD_AFTER == 0:
                told(done.messages, done.total)
    told(done.messages, done.total)
    return done


def _ranges(broker: Broker, section: Section) -> list[OffsetRange]:
    shape = broker.shape()
    parts = {str(each): each for each in sorted(shape.partitions)}
    if unknown := sorted({*section.begin, *section.end} - parts.keys()):
        raise ConfigError(f"{unknown[0]} is no partition of the source: it has {', '.join(parts)}")
    first, last = broker.beginnings(shape.partitions), broker.ends(shape.partitions)
    since = _at(broker, shape.partitions, section.since_ms, first)
    until = _at(broker, shape.partitions, section.until_ms, last)
    ranges = []
    for part, each in parts.items():
        begin = section.begin.get(part, since[each])
        end = min(section.end.get(part, until[each]), last[each])
        if begin < first[each]:
            raise SourceLost(f"{part} begins at offset {first[each]}, and not at {begin}")
        if begin < end:
            topic_id = shape.topic_ids[each.topic]
            ranges.append(OffsetRange(each.topic, topic_id, each.partition, begin, end))
    if not ranges:
        raise ConfigError("there is no message to record: give an earlier begin or a later end")
    return ranges


def _at(
    broker: Broker,
    partitions: frozenset[TopicPartition],
    at_ms: int | None,
    otherwise: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    return otherwise if at_ms is None else broker.offsets_at(partitions, at_ms)


@contextmanager
def _file(output: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Under another name until it is whole."""
    part = output.with_name(f"{output.name}.part")
    try:
        with gzip.open(part, "wb") if output.suffix == ".gz" else part.open("wb") as file:
            yield file
        os.replace(part, output)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _line(sent: Sent, change: Callable[[bytes], bytes] | None) -> bytes:
    key, value = sent.key, sent.value
    if change is not None:
        key = None  # it may hold values of the row
        value = None if value is None else change(value)
    line = {
        "topic": sent.topic,
        "partition": sent.partition,
        "offset": sent.offset,
        "timestamp_ms": sent.timestamp_ms,
        "key_b64": _text(key),
        "value_b64": _text(value),
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
