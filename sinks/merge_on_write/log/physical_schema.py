"""What a table's metadata says about its files: columns, their names in Parquet, statistics.

``PhysicalSchema.of`` refuses, with the reason, a table that this engine does not write: such a
table is for the Spark engine. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.actions import Metadata, Protocol
from sinks.types.delta_types import arrow_of, sql_type

WRITER_VERSION, READER_VERSION = 7, 3
# Features whose rules this engine follows: a table may use them.
UNDERSTOOD = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"),
        *("vacuumProtocolCheck", "domainMetadata", "allowColumnDefaults", "inCommitTimestamp"),
        *("checkpointProtection", "clustering"),
    }
)
# Features that the protocol may list, but that the table must not use.
INACTIVE = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns"),
        *("changeDataFeed", "rowTracking", "variantType", "variantType-preview"),
        *("typeWidening", "typeWidening-preview"),
    }
)
INDEXED_COLUMNS = 32  # so many columns get statistics by Delta's default
_LISTED_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,`]+?))\s*(?:,|$)")


class NotForThisEngine(TidelakeError):
    """Merge-on-write cannot write this table, for the reason in the message; the Spark engine
    may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalColumn:
    """A column: its name for users, its physical name in files, and its type in files
    (``arrow``)."""

    name: str
    physical: str
    field_id: int | None
    arrow: pa.DataType
    has_statistics: bool


@dataclass(frozen=True, kw_only=True)
class PhysicalSchema:
    columns: tuple[PhysicalColumn, ...]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata) -> PhysicalSchema:
        """The shape of a table. Raises NotForThisEngine, with the reason, for a table that this
        engine does not write."""
        settings = metadata.configuration
        _check_features(protocol, metadata)
        mapping = settings.get("delta.columnMapping.mode", "none")
        fields = metadata.schema["fields"]
        with_statistics = _statistics_columns(fields, settings)
        columns = tuple(_column(field, mapping, with_statistics) for field in fields)
        if not _is_on(settings, "delta.enableDeletionVectors"):
            raise NotForThisEngine("its property delta.enableDeletionVectors is not true")
        return cls(columns=columns)

    def column(self, name: str) -> PhysicalColumn:
        """The column of this name, as users see it. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the data files: physical names, and column IDs if the table has them."""
        return pa.schema(
            pa.field(
                column.physical,
                column.arrow,
                metadata=None
                if column.field_id is None
                else {"PARQUET:field_id": str(column.field_id)},
            )
            for column in self.columns
        )


def _check_features(protocol: Protocol, metadata: Metadata) -> None:
    if "deletionVectors" not in protocol.features:
        raise NotForThisEngine("it has no deletion vectors (table feature deletionVectors)")
    if protocol.min_reader_version > READER_VERSION or protocol.min_writer_version > WRITER_VERSION:
        raise NotForThisEngine(
            f"its protocol ({protocol.min_reader_version}, {protocol.min_writer_version}) is newer"
        )
    unknown = protocol.features - UNDERSTOOD - INACTIVE
    if unknown:
        raise NotForThisEngine(f"it has the table features {', '.join(sorted(unknown))}")
    _check_settings(metadata)
    # Who may write then gives IDs to the rows of each file, though no reader relies on them yet.
    is_suspended = _is_on(metadata.configuration, "delta.rowTrackingSuspended")
    if "rowTracking" in protocol.features and not is_suspended:
        raise NotForThisEngine("it has the table feature rowTracking")


def _check_settings(metadata: Metadata) -> None:
    settings = metadata.configuration
    if metadata.partition_columns:
        raise NotForThisEngine("it is partitioned")
    if settings.get("delta.columnMapping.mode", "none") not in ("none", "name"):
        raise NotForThisEngine("its columns are mapped by id")
    for key in ("delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableRowTracking"):
        if _is_on(settings, key):
            raise NotForThisEngine(f"its property {key} is true")
    for key in settings:
        if key.startswith("delta.constraints."):
            name = key.removeprefix("delta.constraints.")
            raise NotForThisEngine(f"it has the constraint {name}")
    if "delta.setTransactionRetentionDuration" in settings:
        raise NotForThisEngine("its identities expire (delta.setTransactionRetentionDuration)")


def _column(
    field: Mapping[str, Any], mapping: str, with_statistics: frozenset[str]
) -> PhysicalColumn:
    name, notes = field["name"], field.get("metadata") or {}
    for note in ("delta.generationExpression", "delta.invariants", "delta.identity.start"):
        if note in notes:
            raise NotForThisEngine(f"column {name} has {note}")
    if "delta.typeChanges" in notes:
        raise NotForThisEngine(f"column {name} has changed its type")
    is_mapped = mapping == "name"
    arrow = arrow_type(name, field["type"])
    return PhysicalColumn(
        name=name,
        physical=notes["delta.columnMapping.physicalName"] if is_mapped else name,
        field_id=notes.get("delta.columnMapping.id") if is_mapped else None,
        arrow=arrow,
        has_statistics=name in with_statistics and not pa.types.is_list(arrow),
    )


def arrow_type(name: str, kind: Any) -> pa.DataType:
    """The type in files of column ``name``, whose type in the log is ``kind``. Raises
    NotForThisEngine."""
    found = arrow_of(sql_type(kind))
    if found is None:
        raise NotForThisEngine(f"column {name} has the type {kind}")
    return found


def _statistics_columns(
    fields: list[Mapping[str, Any]], settings: Mapping[str, str]
) -> frozenset[str]:
    """The names of the columns that get statistics: those that the table's property lists, or else
    the first ones, as many as another property says."""
    listed = settings.get("delta.dataSkippingStatsColumns")
    if listed is not None:
        return frozenset(listed_columns(listed))
    count = int(settings.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS))
    names_in_order = [field["name"] for field in fields]
    return frozenset(names_in_order if count < 0 else names_in_order[:count])


def listed_columns(text: str) -> list[str]:
    """The names in ``delta.dataSkippingStatsColumns``."""
    names = (found[1] or found[2] or "" for found in _LISTED_NAME.finditer(text))
    return [name.replace("``", "`") for name in names]


def _is_on(settings: Mapping[str, str], key: str) -> bool:
    return settings.get(key, "false").lower() == "true"
