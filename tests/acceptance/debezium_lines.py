"""Messages as Debezium's connectors send them, as lines of a recording."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MS = 1_795_711_873_000


@dataclass(slots=True)
class DebeziumLines:
    """One connector's, of database ``shop``; each message is a little later than the one before."""

    prefix: str = "d"
    connector: str = "mysql"
    lines: list[str] = field(default_factory=list)
    at_ms: int = MS

    def row(self, table: str, op: str, before: Any, after: Any, key: Any = None) -> None:
        """``key``: of the message; None: ``id`` of the row."""
        row = after or before
        told = key if key is not None or row is None else {"id": row["id"]}
        sides = {"before": before, "after": after}
        snapshot = "true" if op == "r" else "false"
        source = self._source(table, snapshot)
        schema = _schema(row or {"id": 1})
        value = {"schema": schema, "payload": {**sides, "source": source, "op": op, **self._time}}
        self._add(f"{self.prefix}.shop.{table}", value, told)

    def ddl(self, query: str, table: str | None = None, snapshot: str = "false") -> None:
        of = {"databaseName": "shop", "schemaName": None, "ddl": query, "tableChanges": []}
        self._add(self.prefix, {"source": self._source(table, snapshot), **self._time, **of}, {})

    def garbage(self, table: str) -> None:
        self._add(f"{self.prefix}.shop.{table}", {"no": "message"}, {})

    def write(self, path: Path) -> str:
        """The source URI of the recording."""
        path.write_text("".join(self.lines))
        return f"file://{path}?protocol=debezium&at-least-once=true&partition-num=1"

    @property
    def _time(self) -> dict[str, Any]:
        return {"ts_ms": self.at_ms}

    def _source(self, table: str | None, snapshot: str) -> dict[str, Any]:
        self.at_ms += 10
        told = {"version": "2.7.0.Final", "connector": self.connector, "name": self.prefix}
        place = {"file": "b.1", "pos": self.at_ms - MS}
        return {**told, "ts_ms": self.at_ms, "snapshot": snapshot, "db": "shop", "table": table,
                **place}  # fmt: skip

    def _add(self, topic: str, value: Mapping[str, Any], key: Any) -> None:
        def coded(told: Any) -> str | None:
            text = json.dumps(told, separators=(",", ":")).encode()
            return None if told is None else base64.b64encode(text).decode()

        both = {"key_b64": coded(key), "value_b64": coded(value)}
        at = {"topic": topic, "partition": 0, "offset": len(self.lines)}
        self.lines.append(json.dumps({**at, "timestamp_ms": self.at_ms, **both}) + "\n")


def _schema(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = [
        {"type": "int64" if isinstance(value, int) else "string", "optional": True, "field": name}
        for name, value in row.items()
    ]
    sides = [
        {"type": "struct", "optional": True, "field": side, "fields": fields}
        for side in ("before", "after")
    ]
    return {"type": "struct", "optional": False, "fields": sides, "name": "d.shop.t.Envelope"}
