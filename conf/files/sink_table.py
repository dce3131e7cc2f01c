"""The parts of ``[sink]`` that are about the source: parameters of its URI, and topics beside that
of the URI."""

from __future__ import annotations

from conf.files.reading import Document
from conf.problems import require
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.schema_registry import REGISTRY
from conf.sources.source_parameters import KAFKA_CONFIG_IGNORED, KAFKA_CONFIG_TABLES
from conf.sources.storage_uri import BY_ID


def kafka_config(document: Document) -> dict[str, str]:
    """The parameters in ``[sink.kafka-config]`` of a document that has not been checked yet."""
    sink = document.get("sink")
    table = sink.get("kafka-config") if isinstance(sink, dict) else None
    return as_parameters(table) if isinstance(table, dict) else {}


def as_parameters(table: Document) -> dict[str, str]:
    """``[sink.kafka-config]`` with its tables, or ``[mysql]``, as URI parameters; those in the URI
    itself win."""
    flat: dict[str, str] = {}
    for name, value in table.items():
        if name in KAFKA_CONFIG_IGNORED:
            continue
        if name in KAFKA_CONFIG_TABLES and isinstance(value, dict):
            flat |= as_parameters(value)
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        else:
            flat[name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat


def sink_parameters(sink: Document, *, is_folder: bool) -> dict[str, str]:
    """The parameters of a source URI of messages, or of a folder, that stand in ``[sink]``."""
    if is_folder:
        return _folder_parameters(sink)
    more = {name: sink[name] for name in ("protocol", REGISTRY) if name in sink}
    return {**as_parameters(sink.get("kafka-config", {})), **more}


def _folder_parameters(sink: Document) -> dict[str, str]:
    """``[sink]`` says the folder's dates, ``[sink.cloud-storage-config]`` the names of folders, and
    ``[sink.csv]`` rows."""
    told = {
        name: sink[name] for name in ("protocol", "date-separator", "terminator") if name in sink
    }
    store = sink.get("cloud-storage-config") or {}
    told |= {name: store[name] for name in (BY_ID,) if name in store}
    return {**as_parameters(sink.get("csv") or {}), **as_parameters(told)}


def static_topics(sink: Document) -> tuple[str, ...]:
    """The topics that dispatchers name, and those that the user lists."""
    dispatched = (rule.get("topic", "") for rule in sink.get("dispatchers", ()))
    static = (topic for topic in dispatched if topic and "{" not in topic)
    return (*static, *sink.get("topics", ()))


def check_dispatchers(sink: Document, source: KafkaSettings) -> None:
    """Refuse a topic expression without a list of topics: it stands for topics whose names only
    TiCDC knows, so the user has to list those to read."""
    listed = set(source.topics) - {source.topic} - set(static_topics({**sink, "topics": ()}))
    for rule in sink.get("dispatchers", ()):
        require(
            "{" not in rule.get("topic", "") or bool(listed),
            f"sink.dispatchers: topic {rule.get('topic')!r} stands for many topics: "
            "list those to read in [sink] topics = [...]",
        )
