"""Other folders of TiCDC's storage sink: other names, values, and another format of csv."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode

from tests.services import wire_storage
from tests.services.other_recordings.cells import base, canal, go_number, local
from tests.services.other_recordings.go_json import dumps
from tests.services.other_recordings.json_protocols import canal_json
from tests.services.other_recordings.making import Other
from tests.services.other_recordings.names import place
from tests.services.wire_storage import Step

_DATA = re.compile(r"shop/(?P<table>[^/]+)/(?P<version>\d+)/(?P<rest>.*CDC\d+\.(?:csv|json))")
_DATE = re.compile(r"(?<=/)(\d{4})-(\d\d)-(\d\d)/")
_DATES = {"day": r"\1-\2-\3/", "month": r"\1-\2/", "year": r"\1/", "none": ""}
_HEADER = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema", "ticdc-meta$commit-ts")
Field = tuple[bool, str | None]  # whether it is a text, which has quotes; None: NULL


@dataclass(frozen=True)
class Csv:
    """A format of csv. ``has_handle_key`` and ``has_old`` stay what they were."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    binary: str = "base64"
    has_old: bool = False
    has_handle_key: bool = False
    has_header: bool = False

    def row(self, fields: list[Field]) -> str:
        return self.delimiter.join(map(self._field, fields)) + self.terminator

    def _field(self, field: Field) -> str:
        is_text, text = field
        if text is None:
            return self.null
        if self.quote:
            doubled = text.replace(self.quote, self.quote * 2)
            return f"{self.quote}{doubled}{self.quote}" if is_text else text
        if not is_text:
            return text
        delimiter = "".join(f"\\{char}" for char in self.delimiter)
        escapes = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", self.delimiter: delimiter}
        found = "|".join(map(re.escape, (self.delimiter, "\\", "\r", "\n")))
        return re.sub(found, lambda each: escapes[each[0]], text)

    @cached_property
    def _mark(self) -> re.Pattern[str]:
        """A field and what ends it."""
        ends = f"(?P<end>{re.escape(self.delimiter)}|{re.escape(self.terminator)})"
        if self.quote:
            q = re.escape(self.quote)
            return re.compile(f"(?:{q}(?P<text>(?:[^{q}]|{q}{q})*){q}|(?P<bare>.*?)){ends}", re.S)
        return re.compile(rf"(?P<bare>(?:\\.|[^\\])*?){ends}", re.S)

    def rows(self, text: str) -> Iterator[list[Field]]:
        fields: list[Field] = []
        for found in self._mark.finditer(text):
            if self.quote and found["text"] is not None:
                fields.append((True, found["text"].replace(self.quote * 2, self.quote)))
            elif found["bare"] == self.null:
                fields.append((False, None))
            else:
                bare = found["bare"]
                plain = bare if self.quote else re.sub(r"\\(.)", _unescaped, bare, flags=re.S)
                fields.append((not self.quote, plain))
            if found["end"] == self.terminator:
                yield fields
                fields = []
        assert not fields

    @property
    def parameters(self) -> str:
        told = {
            "protocol": "csv",
            "include-commit-ts": "true",
            "delimiter": self.delimiter,
            "quote": self.quote,
            "null": self.null,
            "terminator": self.terminator,
            "binary-encoding-method": self.binary,
            "output-old-value": str(self.has_old).lower(),
            "output-handle-key": str(self.has_handle_key).lower(),
            "output-field-header": str(self.has_header).lower(),
        }
        return urlencode(told)


def _unescaped(found: re.Match[str]) -> str:
    return {"r": "\r", "n": "\n"}.get(found[1], found[1])


RECORDED = {
    wire_storage.CSV: Csv(),
    wire_storage.CSV_OLD_VALUE: Csv(
        delimiter="|", quote="", binary="hex", has_old=True, has_handle_key=True
    ),
}


def csv_cell(mysql_type: str, value: Any, zone: str, *, binary: str) -> str:
    kind = base(mysql_type)
    if kind in ("float", "double"):
        return go_number(value, single=kind == "float", low=-4, high=6, exponent=2)
    if kind in ("enum", "set"):
        return str(value["name"])
    if isinstance(value, dict):
        data = bytes.fromhex(value["hex"])
        return data.hex() if binary == "hex" else b64encode(data).decode()
    if kind == "timestamp":
        return local(value, zone)
    return str(canal(mysql_type, value, zone))


@dataclass(frozen=True)
class OtherFolder:
    """``separator``: of dates: day, month, year or none."""

    other: Other
    variant: str
    csv: Csv | None = None  # None: as it was, or JSON
    separator: str | None = None
    terminator: str = "\r\n"  # of JSON

    @cached_property
    def _recorded(self) -> dict[str, bytes]:
        return {p: t for step in wire_storage.steps(self.variant) for p, t in step.files.items()}

    @cached_property
    def _columns(self) -> dict[tuple[str, str], list[str]]:
        """The columns of a table's version, without virtual ones."""
        found = {}
        for path, text in self._recorded.items():
            if "/meta/schema_" in path:
                told = json.loads(text)
                columns = [each["ColumnName"] for each in told["TableColumns"] or ()]
                kept = [each for each in columns if each != "c_gen_v"]
                if "maybe" in kept:  # ADD COLUMN … AFTER: the file has it where rows do not
                    kept.remove("maybe")
                    kept.insert(kept.index("name") + 1, "maybe")
                found[told["Table"], str(told["TableVersion"])] = kept
        return found

    def steps(self) -> Iterator[Step]:
        for step in wire_storage.steps(self.variant):
            files = dict(self._file(path, text) for path, text in step.files.items())
            yield Step(step.what, step.ts, files)

    def _file(self, path: str, text: bytes) -> tuple[str, bytes]:
        parts = path.split("/")
        if path == "metadata":
            return path, text
        names = self.other.names
        if parts[-2:-1] == ["meta"] and parts[-1].startswith("schema_"):
            return self._schema_file(path, text)
        found = _DATA.fullmatch(path)
        made = text
        if found is not None:
            made = self._rows(found["table"], found["version"], text)
        path = "/".join([names.schema, names.table(parts[1]), *parts[2:]])
        if self.separator is not None:
            path = _DATE.sub(_DATES[self.separator], path)
        return path, made

    def _schema_file(self, path: str, text: bytes) -> tuple[str, bytes]:
        names = self.other.names
        told = json.loads(text)
        table = told["Table"]
        assert dumps_indented(told).encode() == text, path
        assert f"_{checksum(told):010d}." in path, path
        told["Schema"], told["Table"] = names.schema, names.table(table)
        told["Query"] = names.sql(told["Query"], table)
        for each in told["TableColumns"] or ():
            each["ColumnName"] = names.column(table, each["ColumnName"])
        file = f"schema_{told['TableVersion']}_{checksum(told):010d}.json"
        folders = [names.schema, *([names.table(table)] if table else []), "meta", file]
        return "/".join(folders), dumps_indented(told).encode()

    def _rows(self, table: str, version: str, text: bytes) -> bytes:
        names = self.other.names
        if self.variant == wire_storage.CANAL_JSON:
            cell = self.other.cell_of("canal-json")
            lines = filter(None, text.split(b"\r\n"))
            ends = self.terminator.encode()
            return b"".join(canal_json(each, names, cell) + ends for each in lines)
        was = RECORDED[self.variant]
        now = self.csv or was
        columns = self._columns[table, version]
        heads = 4 + was.has_old + was.has_handle_key
        made = []
        if now.has_header:
            told = [*_HEADER, *(["ticdc-meta$is-update"] if now.has_old else [])]
            told += [names.column(table, each) for each in columns]
            made.append(now.row([(True, each) for each in told]))
        for fields in was.rows(text.decode()):
            head, rest = fields[:heads], fields[heads:]
            head[1], head[2] = (True, names.table(table)), (True, names.schema)
            row = [
                self._cell(table, column, each) for column, each in zip(columns, rest, strict=True)
            ]
            made.append(now.row([*head, *row]))
        return "".join(made).encode()

    @cached_property
    def _exchanged(self) -> dict[tuple[str, str], Any]:
        values, was = self.other.values, RECORDED[self.variant]
        now = self.csv or was
        if values is None:
            return {}
        encode, encode_now = (partial(csv_cell, binary=each.binary) for each in (was, now))
        return values.exchanged(encode, encode_now)

    def _cell(self, table: str, column: str, field: Field) -> Field:
        (is_text, text), at = field, place(table, column)
        exchanged = self._exchanged.get(at, {})
        if text is None or self.other.values is None:
            return field
        if (key := dumps([text])) in exchanged:
            return is_text, exchanged[key]
        if base(self.other.values.types.get(at, "")) == "timestamp":
            return is_text, local(text, self.other.zone)
        return field


def dumps_indented(told: Any) -> str:
    """As Go's MarshalIndent writes it."""
    text = json.dumps(told, ensure_ascii=False, indent=4)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def checksum(told: dict[str, Any]) -> int:
    columns = sorted(told["TableColumns"] or [], key=lambda each: each["ColumnName"].encode())
    of = {
        "Table": told["Table"],
        "Schema": told["Schema"],
        "Version": 0,
        "TableColumns": columns,
        "TableColumnsTotal": told["TableColumnsTotal"],
    }
    if told["TableColumns"] is None:
        of["TableColumns"] = []
    return zlib.crc32(dumps_indented(of).encode())
