"""The metadata of a table that an operator has loaded anew: its shape, key and form are those of
the rows that come, whatever it had before. A decision without I/O.

All files go by the same commit. So what others did to the columns does not matter any more; the
table's ID, its comments and what operators have set stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sinks.merge_on_write.alter.new_metadata import (
    ID,
    MAX_COLUMN_ID,
    NO_STATISTICS,
    PHYSICAL,
    STATISTICS,
    field_of,
    ids_of,
    with_features,
)
from sinks.merge_on_write.log.actions import Json, Metadata, Protocol
from sinks.target.table_properties import LAST_DDL, RELOADED, SHAPED_AT

_NEEDED = frozenset({"columnMapping", "deletionVectors"})
_OURS = ("tidelake.", "delta.columnMapping.", "delta.enableDeletionVectors", STATISTICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeAnew:
    """``order_id``: of the operator's order and the copy, for which it is done once. ``types``: the
    columns in Spark SQL, in order. ``properties``: those of a new table of this shape.
    ``shape_ts``: DDLs at or below are in that shape. ``sealed``: app IDs of older incarnations,
    which write no more."""

    order_id: str
    types: Mapping[str, str]
    properties: Mapping[str, str]
    shape_ts: int
    sealed: tuple[str, ...] = ()

    def is_done(self, metadata: Metadata) -> bool:
        return metadata.configuration.get(RELOADED) == self.order_id

    def notes(self, app_id: str, version: int) -> dict[str, str]:
        """The properties that only the commit of this version can tell."""
        at = [self.shape_ts, 0]
        return {
            RELOADED: self.order_id,
            LAST_DDL: json.dumps([app_id, *at]),
            SHAPED_AT: json.dumps([*at, version]),
        }


def remade(protocol: Protocol, metadata: Metadata, anew: MadeAnew) -> tuple[Protocol, Metadata]:
    """As they are afterwards, but for `MadeAnew.notes`. A column that keeps its name and type keeps
    its identity in the files too."""
    before: list[Json] = metadata.schema["fields"]
    fields = {field["name"]: _plain(field) for field in before if _has_identity(field)}
    last_id = max(ids_of(before, metadata.configuration))
    made: list[Json] = []
    for name, kind in anew.types.items():
        field = field_of(name, kind, fields.get(name), last_id + 1)
        last_id = max(last_id, *ids_of([field], {}))
        made.append(field)
    stay = {n: v for n, v in metadata.configuration.items() if not n.startswith(_OURS)}
    stay.pop(NO_STATISTICS, None)
    configuration = {**anew.properties, **stay, MAX_COLUMN_ID: str(last_id)}
    text = json.dumps({"type": "struct", "fields": made}, ensure_ascii=False)
    told = {**metadata.fields, "schemaString": text, "configuration": configuration}
    needs = replace(
        protocol,
        reader_features=(protocol.reader_features or frozenset()) | _NEEDED,
        writer_features=(protocol.writer_features or frozenset()) | _NEEDED,
    )
    return with_features(needs, made), Metadata(fields=told)


def _has_identity(field: Json) -> bool:
    return ID in field["metadata"] and PHYSICAL in field["metadata"]


def _plain(field: Json) -> Json:
    """Without what others have asked of its values."""
    notes = field["metadata"]
    kept = {n: v for n, v in notes.items() if not n.startswith("delta.") or n in (ID, PHYSICAL)}
    return {**field, "nullable": True, "metadata": kept}
