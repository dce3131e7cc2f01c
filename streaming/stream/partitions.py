"""Which partitions a stream reads, from where, and what it knows of those that TiCDC may not use.

``partition-num`` of the source URI may be lower than the count of the default topic's partitions.
Some releases of TiCDC write to the first ones alone, others (6.1 to 7.1) to all. So all are read.
Those beyond ``partition-num``, the *strays*, may never get a watermark. They count as resolved as
far as the others are, once they are read to an end that was asked for after the others' watermarks
had been read (`Watermarks.past`).
"""

from __future__ import annotations

import logging

from streaming.source.kafka.broker import KafkaSource, SourceLost, SourceShape
from streaming.source.positions import Offsets, TopicPartition
from streaming.stream.watermarks import Watermarks

logger = logging.getLogger(__name__)


def beginning(
    source: KafkaSource, shape: SourceShape, low_water: Offsets
) -> dict[TopicPartition, int]:
    """The offset from which each of the source's partitions is read: the low water, or for a
    partition without one its first offset. Raises SourceLost where that is not 0."""
    first = source.beginnings(shape.partitions - low_water.keys())
    for partition, offset in sorted(first.items()):
        if offset > 0:  # the partition was added while the changefeed ran; a new start checks more
            raise SourceLost(
                f"topic {partition.topic} partition {partition.partition} is new and begins at "
                f"offset {offset} already: the changefeed starts again, and looks whether "
                "anything is missing"
            )
    return {p: low_water[p] if p in low_water else first[p] for p in shape.partitions}


def past_strays(
    source: KafkaSource, shape: SourceShape, watermarks: Watermarks, position: Offsets
) -> Watermarks:
    """``watermarks``, after everything before ``position`` has been read, with those of the strays
    that are read to their end. Asks the broker only where that can change something; the same
    object where it does not. Raises SourceAway."""
    read_to = {each: position[each] for each in shape.strays}
    if watermarks.past(shape.strays, read_to) == watermarks:
        return watermarks
    ends = source.ends(shape.strays)
    return watermarks.past(
        shape.strays, {each: at for each, at in read_to.items() if at >= ends[each]}
    )


def tell_of_strays(source: KafkaSource, shape: SourceShape, begin: Offsets) -> None:
    """Log that a topic has more partitions than ``partition-num`` says, and what is in them."""
    if not shape.strays:
        return
    ends = source.ends(shape.strays)
    (topic,) = {each.topic for each in shape.strays}  # of other topics all are used
    counts = [each for each in shape.partitions if each.topic == topic]
    held = [f"{each} [{begin[each]}, {ends[each]})" for each in sorted(shape.strays) if ends[each]]
    logger.log(
        logging.WARNING if held else logging.INFO,
        "topic %s has %d partitions, and the source URI says partition-num=%d: all are read, since "
        "TiCDC 6.1 to 7.1 may write to all. Offsets of those beyond: %s",
        *(topic, len(counts), len(counts) - len(shape.strays), ", ".join(held) or "none"),
    )
