"""What a capture of a cluster is started with: a server file (TiCDC's names), the environment, then
arguments; the last one wins. What it replicates is not in it: that is in etcd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from conf.changefeed_file import read_checked
from conf.keys import CHANGEFEED_FILE, OWN_KEYS, SERVER_KEYS, Entry, Ignored, Table
from conf.load import FIELDS, etcd_settings, from_environment, transport_settings
from conf.settings import (
    BatchSettings,
    EtcdSettings,
    Problems,
    SessionSettings,
    TransportSettings,
)

_TICDC_ITSELF = "it is about TiCDC's own work"
_OF_A_CAPTURE = ("etcd", "session", "batch", "settings")
_ADDRESSES = ("addr", "advertise-addr")
_KEYS: dict[str, Entry] = {
    "etcd": OWN_KEYS["etcd"],
    **{
        key: OWN_KEYS[key]
        for key, (part, _) in FIELDS.items()
        if part in _OF_A_CAPTURE and key in OWN_KEYS
    },
    **{key: SERVER_KEYS[key] for key in _ADDRESSES},
    "security": Table({k: entry for k, entry in SERVER_KEYS.items() if k not in _ADDRESSES}),
    **{
        key: Ignored(_TICDC_ITSELF)
        for key in (
            "data-dir",
            "gc-ttl",
            "tz",
            "log-file",
            "log",
            "owner-flush-interval",
            "processor-flush-interval",
            "sorter",
            "kv-client",
            "debug",
        )
    },
}
SERVER_FILE = Table(_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything ``tidelake server`` needs."""

    etcd: EtcdSettings
    session: SessionSettings = field(default_factory=SessionSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"


def load_server(
    *, config: Path | None, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> ServerSettings:
    """``arguments`` has kebab-case keys; a None is an argument not given."""
    return _settings(config, SERVER_FILE, environment, arguments)


def load_cluster(
    *, config: Path | None, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> ServerSettings:
    """The same for an operator: how the cluster is reached. ``config`` is a changefeed file."""
    return _settings(config, CHANGEFEED_FILE, environment, arguments)


def _settings(
    config: Path | None,
    table: Table,
    environment: Mapping[str, str],
    arguments: Mapping[str, object],
) -> ServerSettings:
    values: dict[str, Any] = {}
    problems = Problems()
    with problems.noted():
        document = read_checked(config, table) if config is not None else {}
        values = {**document, **document.get("security", {})}
    with problems.noted():
        values |= from_environment(environment)
    problems.refuse()
    values |= {name: value for name, value in arguments.items() if value is not None}
    parts: dict[str, dict[str, Any]] = {part: {} for part in _OF_A_CAPTURE}
    for name, (part, field_name) in FIELDS.items():
        if name in values and part in parts:
            parts[part][field_name] = values[name]
    made: dict[str, Any] = {}
    with problems.noted():
        made["etcd"] = etcd_settings(values.get("etcd", "embedded"), parts["etcd"])
    with problems.noted():
        made["session"] = SessionSettings(**parts["session"])
    with problems.noted():
        made["batch"] = BatchSettings(**parts["batch"])
    with problems.noted():
        made["transport"] = transport_settings(values)
    problems.refuse()
    return ServerSettings(**made, **parts["settings"])
