"""Opens a changefeed's source, of whatever kind its settings are."""

from __future__ import annotations

from conf.settings import KafkaSettings
from streaming.source.contract import Source
from streaming.source.kafka.source import KafkaSource


def open_source(settings: KafkaSettings) -> Source:
    """Asks nothing yet."""
    return KafkaSource(settings)
