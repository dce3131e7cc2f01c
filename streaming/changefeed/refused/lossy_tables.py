"""Columns of which the source's messages lose something, as the control tables tell them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.schemas import SchemaRow, columns_in
from sinks.types.table_schema import TableSchema
from streaming.changefeed.awaited import delivery
from streaming.protocols.decoders import losses_of
from streaming.protocols.rows import losses as of_messages

logger = logging.getLogger(__name__)


class MissingValues:
    """Tells of each table once which values its target lacks, and again when that changes."""

    def __init__(self) -> None:
        self._told: dict[TableName, tuple[str, Mapping[str, str]]] = {}

    def tell(self, name: TableName, schema: TableSchema, lossy: of_messages.LossyTypes) -> None:
        computed = ", ".join(each.name for each in schema.columns if each.generated == "virtual")
        lost = lossy.among(schema)
        before = self._told.get(name, ("", {}))
        if computed and computed != before[0]:
            logger.info(
                "generated columns that the target does not have: %s table=%s", computed, name
            )
        if lost and lost != before[1]:
            logger.warning(
                "%s may have lost values of these columns before they come here: %s. With "
                "strict-types the table would be refused table=%s",
                *(lossy.source, in_words(lost), name),
            )
        self._told[name] = computed, lost


def lossy_tables(
    row: ChangefeedRow, newest: Callable[[], Mapping[TableName, SchemaRow]]
) -> dict[TableName, Mapping[str, str]]:
    """By table, what is lost of which columns. ``newest``: the last shape of each table of the
    changefeed; not asked where nothing is lost."""
    told = json.loads(row.row_rules or "{}")
    losses = losses_of(
        told.get("protocol", ""),
        is_numbered=delivery(row) is not None,
        lost_text=told.get("lost_text"),
    )
    found = {
        name: of_messages.lossy_columns(columns_in(shape), losses)
        for name, shape in (newest() if losses else {}).items()
    }
    return {name: columns for name, columns in found.items() if columns}


def in_words(columns: Mapping[str, str]) -> str:
    """What is lost of which columns."""
    return of_messages.in_words(columns)
