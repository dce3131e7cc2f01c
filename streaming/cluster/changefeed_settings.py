"""A changefeed as it stands in etcd, and as the data plane knows it: one mapping, both ways.

``sink-uri`` of the info is the very URI that TiCDC was given, which is *our source*; where the
tables are stands in its config as ``sink.delta-uri``. The config is the changefeed file as JSON:
TiCDC's keys, and Tidelake's own at its top. What the info says by itself is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from conf.keys import OWN_KEYS
from conf.load import load_changefeed
from conf.masking import masked_uri
from conf.settings import Changefeed, SettingError
from coordination.errors import ConfigError, SinkUriInvalid, SourceUriInvalid
from coordination.metadata.model import ChangefeedInfo, rfc3339
from coordination.model import ChangefeedID, Ts
from coordination.version import tidelake_version

DELTA_URI: Final = "delta-uri"
OF_THE_INFO: Final = (
    *("changefeed-id", "source-uri", "sink-uri", "start-ts", "target-ts"),
    "overwrite-checkpoint-ts",
)


def changefeed_settings(info: ChangefeedInfo) -> Changefeed:
    """Raises ConfigError for what no data plane could work with."""
    config = _without_nulls(info.config or {})
    sink = dict(config.get("sink", {}))
    values = {key: config[key] for key in OWN_KEYS if key in config and key not in OF_THE_INFO}
    values |= {
        "changefeed-id": info.id,
        "source-uri": info.sink_uri,
        "sink-uri": sink.pop(DELTA_URI, None),
        "start-ts": info.start_ts,
    }
    if info.target_ts:
        values["target-ts"] = info.target_ts
    try:
        return load_changefeed({**config, "sink": sink}, values)
    except SettingError as error:
        raise _kind(error)(f"changefeed {info.id}: {error}") from error


def _kind(error: SettingError) -> type[ConfigError]:
    for prefix, kind in (("source-uri", SourceUriInvalid), ("sink-uri", SinkUriInvalid)):
        if all(each.startswith(prefix) for each in error.problems):
            return kind
    return ConfigError


def uris(info: ChangefeedInfo) -> dict[str, str | None]:
    """``source_uri`` and ``sink_uri`` as a user of Tidelake gave them, but for secrets."""
    sink = (info.config or {}).get("sink") or {}
    return {"source_uri": masked_uri(info.sink_uri), "sink_uri": sink.get(DELTA_URI)}


def changefeed_config(document: Mapping[str, Any], *, delta_uri: str) -> dict[str, Any]:
    """The info's config for a (checked) changefeed file and the URI of the warehouse."""
    config = {key: value for key, value in document.items() if key not in OF_THE_INFO}
    return {**config, "sink": {**config.get("sink", {}), DELTA_URI: delta_uri}}


def described(
    changefeed: Changefeed, arguments: Mapping[str, Any], document: Mapping[str, Any]
) -> ChangefeedInfo:
    """The info of a new changefeed: ``changefeed`` is what the arguments, the environment and the
    file (``document``) were found to say."""
    given = {**document, **{key: each for key, each in arguments.items() if each is not None}}
    return ChangefeedInfo(
        id=ChangefeedID(changefeed.id),
        sink_uri=str(given["source-uri"]),
        create_time=rfc3339(datetime.now(UTC)),
        start_ts=Ts(changefeed.start_ts),
        target_ts=Ts(changefeed.target_ts or 0),
        config=changefeed_config(document, delta_uri=str(given["sink-uri"])),
        creator_version=tidelake_version(),
    )


def updated(
    info: ChangefeedInfo, arguments: Mapping[str, Any], document: Mapping[str, Any]
) -> ChangefeedInfo:
    """The info with what is given now; all else is kept, and so is what it is: its ID, its start.

    A table is changed key by key, a list as a whole; a target-ts of 0 is none any more."""
    given = {**document, **{key: each for key, each in arguments.items() if each is not None}}
    file = {key: each for key, each in document.items() if key not in OF_THE_INFO}
    sink = {"sink": {DELTA_URI: given["sink-uri"]}} if "sink-uri" in given else {}
    return replace(
        info,
        sink_uri=str(given.get("source-uri", info.sink_uri)),
        target_ts=Ts(given.get("target-ts", info.target_ts)),
        config=_merged(_merged(info.config or {}, file), sink),
    )


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    """Go writes what is not set as null."""
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if value is not None
    }
