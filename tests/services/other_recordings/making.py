"""Makes them: `made` writes the file that a changefeed plays, `Truth` says what it leads to."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coordination.model import TableName
from sinks.target.target_table import table_uri
from tests.services import wire
from tests.services.delta_rows import read_rows
from tests.services.other_recordings.cells import ENCODERS
from tests.services.other_recordings.json_protocols import canal_json, debezium, simple
from tests.services.other_recordings.names import Names
from tests.services.other_recordings.open_protocol import open_protocol
from tests.services.other_recordings.values import Cell, Values
from tests.services.wire import WireMessage


def same(_table: str, _column: str, cell: Any) -> Any:
    return cell


@dataclass(frozen=True)
class Other:
    """What is other than in the recording. ``values`` has TiCDC's zone, too."""

    names: Names = field(default_factory=Names)
    values: Values | None = None

    @property
    def zone(self) -> str:
        return "UTC" if self.values is None else self.values.zone

    @cached_property
    def _cells(self) -> dict[str, Cell]:
        return {} if self.values is None else {p: self.values.cell(p) for p in ENCODERS}

    def cell_of(self, variant: str) -> Cell:
        return next((self._cells[p] for p in self._cells if variant.startswith(p)), same)

    def message(self, variant: str, message: WireMessage) -> WireMessage:
        key, value, cell = message.key, message.value, self.cell_of(variant)
        if variant.startswith(("open", "debezium")):
            assert key is not None
            assert value is not None
            change = open_protocol if variant.startswith("open") else debezium
            key, value = change(key, value, self.names, cell)
        elif value is not None:
            of_value = canal_json if variant.startswith("canal-json") else simple
            value = of_value(value, self.names, cell)
        return replace(message, key=key, value=value)

    def messages(self, variant: str) -> Iterator[WireMessage]:
        for each in wire.messages(variant):
            yield self.message(variant, each)

    def claims(self, variant: str, folder: Path) -> Path:
        """The files of the claim-check storage."""
        folder.mkdir()
        with gzip.open(wire.DATA / variant / "claim-check.json.gz", "rt", encoding="utf-8") as text:
            bodies = json.load(text)
        for name, body in bodies.items():
            both = json.loads(body)
            decoded = [None if both[k] is None else base64.b64decode(both[k]) for k in both]
            parts = dict(zip(both, decoded, strict=True))
            message = WireMessage(topic="", partition=0, offset=0, note="", **parts)
            made = self.message(variant, message)
            texts = {k: _base64(getattr(made, k)) for k in both}
            (folder / name).write_text(json.dumps(texts, separators=(",", ":")))
        return folder

    def expected(self, label: str) -> dict[str, wire.ExpectedTable]:
        """By their new names."""
        found = {}
        for name, table in wire.expected(label).items():
            renamed = {c: self.names.column(name, c) for c in table.columns}
            found[self.names.table(name)] = replace(
                table,
                name=self.names.table(name),
                columns=tuple(renamed.values()),
                key=table.key and tuple(renamed[c] for c in table.key),
                rows=tuple(
                    {renamed[c]: v for c, v in row.items()} for row in self._rows(label, table)
                ),
            )
        return found

    def _rows(self, label: str, table: wire.ExpectedTable) -> Iterable[dict[str, Any]]:
        if self.values is None:
            yield from table.rows
            return
        for row in wire.shown_rows(label, table.name):
            yield {column: self._value(table, column, row[column]) for column in table.columns}

    def _value(self, table: wire.ExpectedTable, column: str, was: Any) -> Any:
        assert self.values is not None
        now = self.values.now(table.name, column, was)
        return None if now is None else table.readers[column](now)

    def differences(
        self, warehouse: Path, label: str, *, but: str = "", kept: Callable[[str], str] = str
    ) -> list[str]:
        """One line for each table with a key that is not the truth. ``but``: one that is left
        out. ``kept``: under which name."""
        found = []
        for each in self.expected(label).values():
            if each.key is not None and each.name != self.names.table(but):
                name = TableName(kept(self.names.schema), kept(each.name))
                uri = table_uri(str(warehouse), name)
                found.append(each.difference(read_rows(uri)))
        return [line for line in found if line is not None]


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write(messages: Iterator[WireMessage], path: Path) -> Path:
    with path.open("w") as file:
        for each in messages:
            record = {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "key_b64": _base64(each.key),
                "value_b64": _base64(each.value),
                "headers": [],
                "note": each.note,
            }
            file.write(json.dumps(record) + "\n")
    return path
