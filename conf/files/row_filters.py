"""Whether the parts of event filters that are about rows can be asked of a source's rows."""

from __future__ import annotations

from typing import Final

from conf.problems import SettingError, require
from conf.rows.row_filter import value_rule
from conf.settings import FilterSettings
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import SourceSettings

LEAVE_IT: Final = (
    "If TiCDC's own changefeed file has it too, TiCDC has left these rows out already: say "
    'dml-filters = "ticdc" in [filter]'
)


def check_row_filters(settings: FilterSettings, source: SourceSettings) -> None:
    """Raise SettingError for a condition that is not read here."""
    is_ours = isinstance(source, BinlogSettings)
    require(
        settings.dml_filters == "here" or not is_ours,
        'filter.dml-filters = "ticdc": no TiCDC stands before a database\'s binlog. Leave it out, '
        "and event filters are asked here",
    )
    for each in settings.event_filters if settings.dml_filters == "here" else ():
        try:
            value_rule(each)
        except SettingError as error:
            hint = "" if is_ours else f". {LEAVE_IT}"
            raise SettingError(f"filter.event-filters.{error}{hint}") from error
