"""Whether the parts of event filters that are about rows can be asked of a source's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conf.files.reading import Document
from conf.problems import SettingError, require
from conf.rows.event_filter import EventFilter
from conf.rows.row_filter import texts_of, value_rule
from conf.settings import FilterSettings
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import OLD_VALUE
from conf.sources.source_uri import SourceSettings

_ONLY_COLUMNS: Final = "ignore-update-only-columns"
_LEAVE_IT: Final = (
    "If TiCDC's own changefeed file has it too, TiCDC has left these rows out already: say "
    'dml-filters = "ticdc" in [filter]'
)


def check_row_filters(
    settings: FilterSettings, source: SourceSettings, told: Sequence[Document]
) -> None:
    """Raise SettingError for a condition that is not read here. ``told``: the event filters as the
    file has them."""
    is_ours = isinstance(source, BinlogSettings)
    require(
        settings.dml_filters == "here" or not is_ours,
        'filter.dml-filters = "ticdc": no TiCDC stands before a database\'s binlog. Leave it out, '
        "and event filters are asked here",
    )
    is_asked = settings.dml_filters == "here"
    require(
        not (is_asked and any(each.get(_ONLY_COLUMNS) for each in told)),
        f"filter.event-filters.{_ONLY_COLUMNS} is not asked here. {_LEAVE_IT}",
    )
    for each in settings.event_filters if is_asked else ():
        require(
            _tells_updates(source) or not _tells_apart(each),
            f"filter.event-filters: with {OLD_VALUE} = false of open-protocol an UPDATE comes as "
            "an INSERT does, and what is said of either cannot be asked. Let TiCDC send old "
            f"values, or leave such filters to it. {_LEAVE_IT}",
        )
        try:
            value_rule(each)
        except SettingError as error:
            hint = "" if is_ours else f". {_LEAVE_IT}"
            raise SettingError(f"filter.event-filters.{error}{hint}") from error


def _tells_updates(source: SourceSettings) -> bool:
    return not isinstance(source, KafkaSettings | RecordingSettings) or source.tells_updates


def _tells_apart(of: EventFilter) -> bool:
    """Whether it says anything of INSERTs or UPDATEs."""
    kinds = texts_of(of).keys() - {"delete"}
    events = [each.strip().lower() for each in of.ignore_event]
    return bool(kinds) or any(each in ("insert", "update", "all", "all dml") for each in events)
