"""The manifest of a table's copy: what its lines say, and how they are written and read.

The first line has the table and the plan with which its copy began, each other one an outcome. A
line is written whole or not at all. Only the last one is waited for: lines that a machine's crash
takes away, or spoils, are of chunks that are read again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coordination.model import TableName
from sinks.types.mysql_type import MySQLType
from streaming.source.dump.chunks import ChunkPlan, Measured, Outcome, WasRead
from streaming.source.dump.key_ranges import KeyRange
from streaming.source.dump.source_table import SourceColumn, SourceTable


def append(path: Path, line: Mapping[str, Any], *, wait: bool) -> None:
    """``wait``: until it is on the disk. Raises OSError; then the file is as it was."""
    text = (json.dumps(line, ensure_ascii=False) + "\n").encode()
    with path.open("ab", buffering=0) as manifest:
        size = manifest.tell()
        try:
            if manifest.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
            if wait:
                os.fsync(manifest.fileno())
        except OSError:
            with suppress(OSError):
                manifest.truncate(size)
            raise


def whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Those before the first that is spoilt, which is taken away with all behind it."""
    if not path.exists():
        return
    text = path.read_bytes()
    at = 0
    while (end := text.find(b"\n", at)) >= 0:
        try:
            line = json.loads(text[at:end])
        except ValueError:
            break
        yield line
        at = end + 1
    if at < len(text):
        os.truncate(path, at)


def described(table: SourceTable) -> dict[str, Any]:
    columns = [[each.name, str(each.type), each.nullable, each.charset] for each in table.columns]
    return {
        "name": [table.name.schema, table.name.table],
        "columns": columns,
        "key": list(table.key),
        "index": table.index,
    }


def table_from_json(fields: Mapping[str, Any]) -> SourceTable:
    """The table that was ``described``; nothing is known of its size."""
    return SourceTable(
        name=TableName(*fields["name"]),
        columns=tuple(
            SourceColumn(name=name, type=MySQLType.parse(text), nullable=nullable, charset=charset)
            for name, text, nullable, charset in fields["columns"]
        ),
        key=tuple(fields["key"]),
        index=fields["index"],
        rows=0,
        bytes=0,
    )


def plan_to_json(plan: ChunkPlan) -> dict[str, Any]:
    return {
        "chunk_rows": plan.chunk_rows,
        "limit": plan.limit,
        "todo": [each.to_json() for each in plan.todo],
        "unmeasured": plan.unmeasured and plan.unmeasured.to_json(),
    }


def plan_from_json(fields: Mapping[str, Any]) -> ChunkPlan:
    behind = fields["unmeasured"]
    return ChunkPlan(
        chunk_rows=fields["chunk_rows"],
        limit=fields["limit"],
        todo=tuple(map(KeyRange.from_json, fields["todo"])),
        unmeasured=behind and KeyRange.from_json(behind),
    )


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Measured):
        return {"measured": outcome.range.to_json(), "bound": outcome.bound}
    return {"read": outcome.range.to_json(), "cut": outcome.cut}


def outcome_from_json(fields: Mapping[str, Any]) -> Outcome:
    if "measured" in fields:
        return Measured(KeyRange.from_json(fields["measured"]), _bound(fields["bound"]))
    cut = fields["cut"]
    return WasRead(KeyRange.from_json(fields["read"]), cut and (cut[0], cut[1]))


def _bound(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts)
