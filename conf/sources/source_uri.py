"""The source URI: its scheme says what kind of source is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conf.problems import require
from conf.sources import kafka_uri, recording_uri
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import NOTHING, split_uri, uri_parameters

SourceSettings = KafkaSettings | RecordingSettings
SCHEMES_NOT_BUILT = (
    "s3", "gcs", "gs", "azure", "azblob", "mysql", "mariadb", "tidb", "pulsar",
)  # fmt: skip


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
    parameters = {**defaults, **uri_parameters(uri)}
    if parts.scheme == recording_uri.SCHEME:
        return recording_uri.parse_recording_uri(parts, parameters)
    return kafka_uri.parse_kafka_uri(parts, parameters, topics)


def _check_scheme(scheme: str) -> None:
    require(
        scheme != "", "no scheme; it must look like kafka://host:9092/topic?protocol=canal-json"
    )
    require(
        scheme.partition("+")[0] != "delta",
        "that is --sink-uri here: --source-uri is the sink URI that TiCDC was given, "
        "kafka://host:9092/topic?protocol=canal-json",
    )
    require(scheme not in SCHEMES_NOT_BUILT, f"{scheme}:// is not built yet: use kafka://")
    require(
        scheme in (*kafka_uri.SCHEMES, recording_uri.SCHEME),
        f"scheme {scheme!r} is not a source: use kafka:// (or file:// for a recording)",
    )
