"""Translates a changefeed between its info in etcd and the settings that the data plane uses.

``sink-uri`` of the info is the URI that TiCDC was given: TiCDC's sink is *our source*. The URI of
our warehouse is ``sink.delta-uri`` in the info's config. That config is the changefeed file as
JSON: TiCDC's keys, and Tidelake's own keys at the top level. Keys that the info has fields for
(`OF_THE_INFO`) are not in it. It has the text of a schema file as `schema-text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from conf.files.keys import OWN_KEYS
from conf.load import load_changefeed
from conf.masking import masked_uri
from conf.problems import SettingError
from conf.settings import Changefeed
from conf.sources.recording_uri import RecordingSettings
from coordination.errors import ConfigError, SinkUriInvalid, SourceUriInvalid
from coordination.metadata.records import ChangefeedInfo, rfc3339
from coordination.metadata.version import tidelake_version
from coordination.model import ChangefeedID, Ts
from streaming.changefeed.schema_file import stored_text

DELTA_URI: Final = "delta-uri"
SCHEMA_TEXT: Final = "schema-text"
OF_THE_INFO: Final = (
    *("changefeed-id", "source-uri", "sink-uri", "start-ts", "target-ts"),
    "overwrite-checkpoint-ts",
)


def changefeed_settings(info: ChangefeedInfo) -> Changefeed:
    """Raises ConfigError (SourceUriInvalid, SinkUriInvalid) for settings that are not valid."""
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
        changefeed = load_changefeed({**config, "sink": sink}, values)
    except SettingError as error:
        raise _kind(error)(f"changefeed {info.id}: {error}") from error
    if isinstance(changefeed.source, RecordingSettings):
        raise SourceUriInvalid(
            f"changefeed {info.id}: source-uri: a recording is a file on one machine, and a "
            "cluster's captures run on many: play it with `tidelake run`"
        )
    return changefeed


def _kind(error: SettingError) -> type[ConfigError]:
    for prefix, kind in (("source-uri", SourceUriInvalid), ("sink-uri", SinkUriInvalid)):
        if all(each.startswith(prefix) for each in error.problems):
            return kind
    return ConfigError


def uris(info: ChangefeedInfo) -> dict[str, str | None]:
    """``source_uri`` and ``sink_uri`` as a user of Tidelake gave them, with secrets masked."""
    sink = (info.config or {}).get("sink") or {}
    return {"source_uri": masked_uri(info.sink_uri), "sink_uri": sink.get(DELTA_URI)}


def changefeed_config(document: Mapping[str, Any], *, delta_uri: str) -> dict[str, Any]:
    """The info's config for a changefeed file that was checked, and the warehouse's URI."""
    config = {key: value for key, value in document.items() if key not in OF_THE_INFO}
    return {**config, "sink": {**config.get("sink", {}), DELTA_URI: delta_uri}}


def described(
    changefeed: Changefeed, arguments: Mapping[str, Any], document: Mapping[str, Any]
) -> ChangefeedInfo:
    """The info of a new changefeed. ``changefeed`` holds the checked settings that the arguments,
    the environment and the changefeed file (``document``) give together."""
    given = {**document, **{key: each for key, each in arguments.items() if each is not None}}
    config = changefeed_config(document, delta_uri=str(given["sink-uri"]))
    if changefeed.schema_text:
        protocol = changefeed.source.protocol
        config[SCHEMA_TEXT] = stored_text(changefeed.schema_text, changefeed.filter, protocol)
    return ChangefeedInfo(
        id=ChangefeedID(changefeed.id),
        sink_uri=str(given["source-uri"]),
        create_time=rfc3339(datetime.now(UTC)),
        start_ts=Ts(changefeed.start_ts),
        target_ts=Ts(changefeed.target_ts or 0),
        config=config,
        creator_version=tidelake_version(),
    )


def updated(
    info: ChangefeedInfo, arguments: Mapping[str, Any], document: Mapping[str, Any]
) -> ChangefeedInfo:
    """The info with the settings that are given now; all others are kept. The ID and the start-ts
    cannot be changed.

    A section of the config is merged key by key, a list is replaced as a whole. A target-ts of 0
    removes the target-ts. Raises ConfigError."""
    given = {**document, **{key: each for key, each in arguments.items() if each is not None}}
    file = {key: each for key, each in document.items() if key not in OF_THE_INFO}
    sink = {"sink": {DELTA_URI: given["sink-uri"]}} if "sink-uri" in given else {}
    changed = replace(
        info,
        sink_uri=str(given.get("source-uri", info.sink_uri)),
        target_ts=Ts(given.get("target-ts", info.target_ts)),
        config=_merged(_merged(info.config or {}, file), sink),
    )
    if SCHEMA_TEXT in given:
        of = changefeed_settings(changed)
        text = stored_text(given[SCHEMA_TEXT], of.filter, of.source.protocol)
        changed = replace(changed, config={**(changed.config or {}), SCHEMA_TEXT: text})
    return changed


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
    """TiCDC's Go code writes settings that are not set as null."""
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if value is not None
    }
