"""The changes that a command has made, from the old value to the new one. Pure.

``changed`` of a row: by the name of the changed setting ``{"from": …, "to": …}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conf.masking import MASK, is_secret_name, masked, masked_uri, masked_values
from coordination.metadata.records import ChangefeedInfo
from streaming.changefeed.settings_in_etcd import DELTA_URI, SCHEMA_TEXT

CHANGED: Final = "changed"
REFERENCES: Final = ("${env:", "${file:")  # to secrets: they are none
ShownRow = Mapping[str, Any]


def between(before: ShownRow, after: ShownRow, *names: str) -> dict[str, dict[str, Any]]:
    """The differences in these fields (in all if none is named)."""
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names or sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def setting_changes(before: ChangefeedInfo, after: ChangefeedInfo) -> dict[str, dict[str, Any]]:
    """The settings that an update has changed, by their names in a changefeed file, with a dot
    between a section's and its key's. Secrets are masked, so both sides may look alike; for a
    schema file the size is shown."""
    return {
        name: {side: _told(name, value) for side, value in each.items()}
        for name, each in between(_settings(before), _settings(after)).items()
    }


def _settings(info: ChangefeedInfo) -> dict[str, Any]:
    config = dict(info.config or {})
    sink = dict(config.pop("sink", None) or {})
    return {
        "source-uri": info.sink_uri,
        "sink-uri": sink.pop(DELTA_URI, None),
        "target-ts": info.target_ts or None,
        "schema-file": config.pop(SCHEMA_TEXT, None),
        **_flat({**config, "sink": sink}),
    }


def _told(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return masked_values(value)
    if name == "schema-file":
        return f"{len(value)} characters" if value else None
    is_secret = is_secret_name(name.rpartition(".")[2]) and not value.startswith(REFERENCES)
    return MASK if is_secret else masked(masked_uri(value))


def lines(row: ShownRow) -> list[str]:
    """A line for each change, as ``shop: normal → stopped`` or ``shop: target-ts: - → 1000``. None
    for a row of a command that changes nothing."""
    if CHANGED not in row:
        return []
    subject = next(row[each] for each in ("task", "table", "changefeed", "capture") if each in row)
    if not row[CHANGED]:
        return [f"{subject}: nothing is changed, it is so already"]
    return [
        f"{subject}: {'' if name == 'state' else f'{name}: '}"
        f"{_shown(each['from'])} → {_shown(each['to'])}"
        for name, each in row[CHANGED].items()
    ]


def _shown(value: Any) -> str:
    return "-" if value is None else masked(str(value))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value
    return found
