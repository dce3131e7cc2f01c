"""Opens a changefeed's source, of whatever kind its settings are."""

from __future__ import annotations

from conf.recording_uri import RecordingSettings
from conf.source_uri import SourceSettings
from coordination.errors import ConfigError
from streaming.source.contract import Source
from streaming.source.kafka.source import KafkaSource


def open_source(settings: SourceSettings) -> Source:
    """Asks nothing yet. Raises ConfigError for a kind of source that cannot be read yet."""
    if isinstance(settings, RecordingSettings):
        raise ConfigError("source-uri: a recording cannot be read yet: use kafka://")
    return KafkaSource(settings)
