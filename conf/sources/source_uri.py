"""The source URI: its scheme says what kind of source is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from conf.forms import ID_MAX_LENGTH, is_id
from conf.problems import require
from conf.sources import binlog_uri, kafka_uri, recording_uri, storage_uri, tidb_uri
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import NOTHING, check_names, split_uri, uri_parameters
from conf.sources.storage_uri import StorageSettings
from conf.sources.tidb_uri import TidbSettings

SourceSettings = KafkaSettings | RecordingSettings | BinlogSettings | TidbSettings | StorageSettings
SCHEMES_NOT_BUILT = ("pulsar",)
_FORMS = "kafka://host:9092/topic?protocol=canal-json, or mysql://user@host:3306/"


def parse_source_uri(
    uri: str, *, defaults: Mapping[str, str] = NOTHING, topics: Sequence[str] = ()
) -> SourceSettings:
    """The source that the URI describes. ``defaults`` are parameters from a changefeed file (those
    of the URI win), ``topics`` are topics to read besides those of the URI.

    Raises SettingError. No message repeats the URI, which may hold a password.
    """
    parts = split_uri(uri)
    _check_scheme(parts.scheme)
    require(parts.fragment == "" and "#" not in uri, "# is written %23 in a URI, in a password too")
    if is_binlog_uri(uri):
        parameters = {**defaults, **binlog_uri.joined(uri_parameters(uri, binlog_uri.KNOWN))}
        return binlog_uri.parse_binlog_uri(parts, parameters)
    if is_tidb_uri(uri):
        return tidb_uri.parse_tidb_uri(parts, uri_parameters(uri, tidb_uri.KNOWN))
    if storage_uri.is_storage_uri(parts):
        given = {n: each for n, each in defaults.items() if n in storage_uri.KNOWN}
        own = uri_parameters(uri, storage_uri.KNOWN)
        return storage_uri.parse_storage_uri(parts, {**given, **own})
    parameters = {**defaults, **uri_parameters(uri)}
    if parts.scheme == recording_uri.SCHEME:
        return recording_uri.parse_recording_uri(parts, parameters)
    return kafka_uri.parse_kafka_uri(parts, parameters, topics)


def changefeed_id(given: str | None, source: SourceSettings) -> str:
    """The ID that was given, else the name of the topic or the recording, or of a database the
    scheme: what is copied of a server has no name, and its host may change. A name that is not a
    valid ID is refused, not altered: two topics could become the same ID, and a user who looks for
    the topic's name in the control tables would not find it."""
    if given:
        return given
    name, what = source.name, "topic" if isinstance(source, KafkaSettings) else "recording"
    suggestion = re.sub(r"[^a-zA-Z0-9]+", "-", name)[:ID_MAX_LENGTH].strip("-")
    require(
        is_id(name),
        f"changefeed-id is missing, and {what} {name!r} cannot be one (letters and digits, joined "
        f"by single hyphens, at most {ID_MAX_LENGTH}): give --changefeed-id {suggestion}".rstrip(),
    )
    return name


def lost_text_of(source: SourceSettings) -> str | None:
    """The text that its rows cannot tell from NULL; None: there is none."""
    csv = source.csv if isinstance(source, StorageSettings) else None
    return None if csv is None else csv.lost_text


def is_at_least_once(source: SourceSettings) -> bool:
    """Whether its messages have neither a commit-ts nor watermarks."""
    return isinstance(source, KafkaSettings | RecordingSettings) and source.is_numbered


def is_binlog_uri(uri: str) -> bool:
    """Whether it names a database, whose parameters are others than Kafka's. Raises SettingError if
    the text is no URI at all."""
    return split_uri(uri).scheme in binlog_uri.SCHEMES


def is_tidb_uri(uri: str) -> bool:
    """As ``is_binlog_uri``, of a TiDB."""
    return split_uri(uri).scheme == tidb_uri.SCHEME


def is_folder_uri(uri: str) -> bool:
    """Whether it names a folder of TiCDC's storage sink. Raises as ``is_binlog_uri``."""
    return storage_uri.is_storage_uri(split_uri(uri))


def check_parameters(uri: str) -> None:
    """Raise one SettingError for all parameters of the URI that are unknown or not built."""
    if is_binlog_uri(uri):
        parameters = binlog_uri.joined(uri_parameters(uri, binlog_uri.KNOWN))
        binlog_uri.check_binlog_parameters(split_uri(uri), parameters)
    elif is_tidb_uri(uri):
        tidb_uri.check_tidb_parameters(split_uri(uri), uri_parameters(uri, tidb_uri.KNOWN))
    elif storage_uri.is_storage_uri(split_uri(uri)):
        storage_uri.check_storage_names(uri_parameters(uri, storage_uri.KNOWN))
    else:
        check_names(uri_parameters(uri))


def _check_scheme(scheme: str) -> None:
    require(scheme != "", f"no scheme; it must look like {_FORMS}")
    require(
        scheme.partition("+")[0] != "delta",
        "that is --sink-uri here: --source-uri is the sink URI that TiCDC was given, or that of a "
        f"database: {_FORMS}",
    )
    require(scheme not in SCHEMES_NOT_BUILT, f"{scheme}:// is not built yet: use kafka://")
    require(
        scheme in (*kafka_uri.SCHEMES, *storage_uri.SCHEMES, *binlog_uri.SCHEMES, tidb_uri.SCHEME),
        f"scheme {scheme!r} is not a source: use kafka://, mysql://, s3:// or file:// (or tidb:// "
        "for a copy)",
    )
