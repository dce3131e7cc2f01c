"""What a capture of a cluster is started with: a server file (TiCDC's names), the environment, then
arguments; the last one wins. What it replicates is not in it: that is in etcd."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from conf.changefeed_file import Document, check, read_changefeed_file
from conf.keys import OWN_KEYS, SERVER_KEYS, Entry, Ignored, Table
from conf.load import FIELDS, etcd_settings, from_environment
from conf.settings import (
    BatchSettings,
    EtcdSettings,
    SessionSettings,
    SettingError,
    TransportSettings,
)

_TICDC_ITSELF = "it is about TiCDC's own work"
_OF_A_CAPTURE = ("etcd", "session", "batch", "settings")
_SECURITY = ("ca-path", "cert-path", "key-path", "mtls")
_CERT_ALLOWED_CN = Ignored("any certificate of the CA is a capture's or an operator's")
_KEYS: dict[str, Entry] = {
    "etcd": OWN_KEYS["etcd"],
    **{
        key: OWN_KEYS[key]
        for key, (part, _) in FIELDS.items()
        if part in _OF_A_CAPTURE and key in OWN_KEYS
    },
    "addr": SERVER_KEYS["addr"],
    "advertise-addr": SERVER_KEYS["advertise-addr"],
    "security": Table(
        {**{key: SERVER_KEYS[key] for key in _SECURITY}, "cert-allowed-cn": _CERT_ALLOWED_CN}
    ),
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
    return _settings(_read(config) if config is not None else {}, environment, arguments)


def load_cluster(
    *, config: Path | None, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> ServerSettings:
    """The same for an operator: how the cluster is reached. ``config`` is a changefeed file."""
    document = read_changefeed_file(config) if config is not None else {}
    return _settings(document, environment, arguments)


def _settings(
    document: Document, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> ServerSettings:
    values: dict[str, Any] = {**document, **document.get("security", {})}
    values |= from_environment(environment)
    values |= {name: value for name, value in arguments.items() if value is not None}
    parts: dict[str, dict[str, Any]] = {part: {} for part in _OF_A_CAPTURE}
    for name, (part, field_name) in FIELDS.items():
        if name in values and part in parts:
            parts[part][field_name] = values[name]
    transport = {name.replace("-", "_"): values[name] for name in SERVER_KEYS if name in values}
    return ServerSettings(
        etcd=etcd_settings(values.get("etcd", "embedded"), parts["etcd"]),
        session=SessionSettings(**parts["session"]),
        batch=BatchSettings(**parts["batch"]),
        transport=TransportSettings(**transport),
        **parts["settings"],
    )


def _read(path: Path) -> Document:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        check(document, SERVER_FILE)
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not TOML: {error}") from error
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error
    return document
