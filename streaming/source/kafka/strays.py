"""Partitions that TiCDC may not use: all are read, and these need no watermark of their own.

``partition-num`` of the source URI may be lower than the count of the default topic's partitions.
Some releases of TiCDC write to the first ones alone, others (6.1 to 7.1) to all. So all are read.
Those beyond ``partition-num``, the *strays*, may never get a watermark. They count as resolved as
far as the others are, once they are read to an end that was asked for after the others' watermarks
had been read (`Watermarks.past`). So do all topics but the URI's: TiCDC sends watermarks to a
table's own only while the table is there. One that another changefeed writes to is refused.
"""

from __future__ import annotations

import logging

from coordination.errors import ConfigError
from streaming.source.contract import Source, SourceShape
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.source.positions import Positions
from streaming.source.resolved.watermarks import Watermarks

logger = logging.getLogger(__name__)


class OtherChangefeed(ConfigError):
    """Topics of several changefeeds of TiCDC are read as those of one."""


def past_strays(
    source: Source, shape: SourceShape, watermarks: Watermarks, position: Positions, topic: str
) -> Watermarks:
    """``watermarks``, after everything before ``position`` has been read, with those of the strays
    that are read to their end. Asks the broker only where that can change something; the same
    where it does not. ``topic``: the source URI's. Raises SourceAway and OtherChangefeed."""
    watermarks = watermarks.gone_back(shape.strays)
    others = {TopicPartition.parse(each).topic for each in watermarks.of_others(shape.strays)}
    if topics := sorted(others - {topic}):
        raise OtherChangefeed(
            f"topic {', '.join(topics)} has watermarks of another changefeed of TiCDC, which stay "
            "behind those of the source URI's topic: rows of it may have been taken for old ones "
            "and left out. Read it by a changefeed of its own, and leave it out of this one by "
            f"topics=…,{','.join('!' + each for each in topics)}"
        )
    read_to = {each: position[each] for each in shape.strays}
    if watermarks.past(shape.strays, read_to) == watermarks:
        return watermarks
    ends = source.ends(shape.strays)
    return watermarks.past(
        shape.strays, {each: at for each, at in read_to.items() if at >= ends[each]}
    )


def tell_of_strays(source: Source, shape: SourceShape, begin: Positions) -> None:
    """Log that a topic has more partitions than ``partition-num`` says, and what is in them.
    ``shape``: its strays are of one topic."""
    topics = {TopicPartition.parse(each).topic for each in shape.strays}
    if not topics:
        return
    ends = source.ends(shape.strays)
    (topic,) = topics
    counts = [each for each in shape.parts if TopicPartition.parse(each).topic == topic]
    held = [f"{each} [{begin[each]}, {ends[each]})" for each in sorted(shape.strays) if ends[each]]
    logger.log(
        logging.WARNING if held else logging.INFO,
        "topic %s has %d partitions, and the source URI says partition-num=%d: all are read, since "
        "TiCDC 6.1 to 7.1 may write to all. Positions of those beyond: %s",
        *(topic, len(counts), len(counts) - len(shape.strays), ", ".join(held) or "none"),
    )
