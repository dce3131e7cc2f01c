"""All errors of a changefeed that can be found before it is created or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordination.errors import ConfigError, TidelakeError
from coordination.metadata.records import ChangefeedInfo
from streaming.changefeed.settings_in_etcd import changefeed_settings

ELSEWHERE = "if that is so here alone, and not for the captures: --no-check"


class DryRunRefused(ConfigError):
    """A dry run that found something wrong; ``row`` is its answer."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        count = len(row["findings"])
        what = "one thing" if count == 1 else f"{count} things"
        super().__init__(f"changefeed {row['changefeed']} would be refused: {what} found wrong")
        self.rows = row


def findings(info: ChangefeedInfo, *, is_new: bool, is_checked: bool) -> list[TidelakeError]:
    """The errors that a start with this info would raise, each by itself; blocks. Without
    ``is_checked`` broker and warehouse are not asked. Raises ConfigError for settings that cannot
    be read at all."""
    from streaming.changefeed import preflight
    from streaming.operations.before_start import database

    changefeed = changefeed_settings(info)
    if not is_checked:
        preflight.check_clocks(changefeed, None)
        return []
    found = preflight.findings(changefeed, is_new=is_new)
    if is_new:
        found += database.refused(changefeed)
    return [_or_elsewhere(each) for each in found]


def refuse(found: Sequence[TidelakeError]) -> None:
    """Raise all findings as one error."""
    if not found:
        return
    if len(found) == 1:
        raise found[0]
    kind = ConfigError if any(isinstance(each, ConfigError) for each in found) else TidelakeError
    raise kind("; ".join(str(each).rstrip(".") for each in found))


def _or_elsewhere(error: TidelakeError) -> TidelakeError:
    """Broker and storage may be reached from the captures alone. Where they were reached from here,
    the captures would fail in the same way."""
    from streaming.changefeed import preflight

    if isinstance(error, preflight.NoWarehouse):
        return ConfigError(f"{str(error).rstrip('.')} ({ELSEWHERE})")
    if isinstance(error, preflight.SAME_EVERYWHERE):
        return error
    return TidelakeError(f"{str(error).rstrip('.')} ({ELSEWHERE})")
