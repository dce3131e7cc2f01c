"""The parts of ``[sink]`` that are about the source: parameters of its URI, and topics beside that
of the URI."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from conf.files.reading import Document
from conf.sources.schema_registry import REGISTRY
from conf.sources.source_parameters import (
    KAFKA_CONFIG_IGNORED,
    KAFKA_CONFIG_TABLES,
    OLD_VALUE,
    RAW_EVENTS,
    split_uri,
)
from conf.sources.source_uri import is_folder_uri
from conf.sources.storage_uri import BY_ID
from conf.sources.topic_expressions import is_expression, is_left_out

# The tables of [sink] that are about a protocol.
_TABLES_OF: Final = {"open-protocol": "open", "default": "open", "debezium": "debezium"}


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


def sink_parameters(sink: Document, uri: str) -> dict[str, str]:
    """The parameters of this source URI, of messages or of a folder, that stand in ``[sink]``.
    Raises SettingError if the text is no URI at all."""
    if is_folder_uri(uri):
        return _folder_parameters(sink)
    more = {name: sink[name] for name in ("protocol", REGISTRY) if name in sink}
    of_uri = dict(parse_qsl(split_uri(uri).query))
    protocol = of_uri.get("protocol") or str(sink.get("protocol", ""))
    of_protocol = sink.get(_TABLES_OF.get(protocol.lower(), "")) or {}
    more |= {name: of_protocol[name] for name in (OLD_VALUE,) if name in of_protocol}
    return {**as_parameters(sink.get("kafka-config", {})), **as_parameters(more)}


def _folder_parameters(sink: Document) -> dict[str, str]:
    """``[sink]`` says the folder's dates, ``[sink.cloud-storage-config]`` the names of folders, and
    ``[sink.csv]`` rows."""
    told = {
        name: sink[name] for name in ("protocol", "date-separator", "terminator") if name in sink
    }
    store = sink.get("cloud-storage-config") or {}
    told |= {name: store[name] for name in (BY_ID, RAW_EVENTS) if name in store}
    return {**as_parameters(sink.get("csv") or {}), **as_parameters(told)}


def dispatched_topics(sink: Document, uri: str) -> tuple[str, ...]:
    """The topics that the user lists, and those that dispatchers name: their expressions only where
    none are listed, here or in the URI. Raises SettingError if the text is no URI at all."""
    listed = tuple(sink.get("topics", ()))
    of_uri = dict(parse_qsl(split_uri(uri).query)).get("topics", "").split(",")
    has_list = any(each and not is_left_out(each) for each in (*listed, *of_uri))
    dispatched = (rule.get("topic", "") for rule in sink.get("dispatchers", ()))
    named = (each for each in dispatched if each and not (has_list and is_expression(each)))
    return (*named, *listed)
