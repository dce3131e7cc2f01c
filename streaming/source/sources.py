"""Opens a changefeed's source, of whatever kind its settings are."""

from __future__ import annotations

from conf.sources.binlog_uri import BinlogSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_uri import SourceSettings
from conf.sources.storage_uri import StorageSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError
from streaming.source.binlog.source import BinlogSource
from streaming.source.contract import Source
from streaming.source.kafka.source import KafkaSource
from streaming.source.recording.source import RecordingSource
from streaming.source.storage.source import StorageSource
from streaming.source.storage.table_heads import NOTHING_TOLD, ToldColumns


def open_source(
    settings: SourceSettings,
    storage_options: tuple[tuple[str, str], ...] = (),
    columns: ToldColumns = NOTHING_TOLD,
) -> Source:
    """Asks nothing yet. Raises ConfigError for one that is only copied.

    ``storage_options``: of the changefeed, for a storage that has large rows; ``columns``: of rows
    that do not name theirs. Only who reads messages needs them."""
    if isinstance(settings, BinlogSettings):
        return BinlogSource(settings)
    if isinstance(settings, RecordingSettings):
        return RecordingSource(settings, storage_options)
    if isinstance(settings, TidbSettings):
        raise ConfigError(
            "source-uri: a TiDB is copied by `tidelake run`, and what comes later TiCDC sends to "
            "Kafka: give the kafka:// URI here"
        )
    if isinstance(settings, StorageSettings):
        return StorageSource(settings, columns)
    return KafkaSource(settings, storage_options)
