"""Rows that a DDL gave a date which Delta does not have: they show NULL, and are counted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from sinks.ddl.column_origin import null_fills, zeros_of_nulls
from sinks.merge_on_write.alter.table_ddl import Reshape
from sinks.merge_on_write.version_reader import open_version

logger = logging.getLogger(__name__)


def dates_made_null(
    order: Reshape, version: int, known: Collection[str], storage_options: Mapping[str, str]
) -> dict[str, int]:
    """By column, in the version that the DDL made: of an added one, whose default it is, or of one
    that is NOT NULL now. Not of the columns that are ``known`` to have some."""
    if order.change is None:
        return {}
    fills = {} if order.on_add_default == "null" else null_fills(order.change, order.rules)
    columns = (fills.keys() | set(zeros_of_nulls(order.change))) - set(known)
    if not columns:
        return {}
    found, rows = {}, open_version(order.target.uri, version, storage_options)
    for column in sorted(columns):
        count = sum(each.column(0).null_count for each in rows.batches([column]))
        if not count:
            continue
        found[column] = count
        logger.warning(
            "%d rows show NULL in a column that was added or is NOT NULL now: the database has a "
            "date there that Delta does not have table=%s column=%s default=%s",
            *(count, order.target.name, column, fills.get(column, "0000-00-00")),
        )
    return found
